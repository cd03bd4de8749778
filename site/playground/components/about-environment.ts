import { h } from '../../components/element.ts';
import { withUnit } from '../../components/with-unit.ts';
import type { Environment } from '../client/wire.ts';
import { formatNumber } from './format.ts';

/** Title and task of an environment. @param title of the page, which focus goes to */
export function aboutEnvironment(environment: Environment, title: HTMLElement): HTMLElement {
  const { instruction } = environment;
  title.textContent = environment.title;
  return h('header', { class: 'stack tight about' }, title, h('p', { class: 'instruction' }, instruction));
}

/** The rules in full, folded away. */
export function rulesOf(environment: Environment): HTMLElement {
  const { description, legend } = environment;
  return h(
    'details',
    { class: 'stack rules' },
    h('summary', {}, 'Rules'),
    ...description.split(/\n\s*\n/).map(text => h('p', { class: 'prose' }, text.replaceAll('\n', ' '))),
    legend.length > 0 &&
      h(
        'dl',
        { class: 'facts' },
        ...legend.map(({ symbol, meaning }) =>
          h('div', {}, h('dt', {}, h('code', {}, symbol)), h('dd', {}, meaning)),
        ),
      ),
    h('p', { class: 'hint' }, facts(environment)),
  );
}

function facts({
  reward_range: [least, greatest],
  max_episode_steps: steps,
  known_optimum: best,
}: Environment): string {
  const bound = (value: number | null) => (value === null ? 'anything' : formatNumber(value));
  const reward = `A step pays from ${bound(least)} to ${bound(greatest)}.`;
  const optimum = best
    ? ` Best known success: ${withUnit(formatNumber(100 * best.success), '%')} (${best.source}).`
    : '';
  return `${reward} An episode has at most ${steps} steps.${optimum}`;
}
