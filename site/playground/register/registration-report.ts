import { h } from '../../components/element.ts';
import { formatAddress } from '../address.ts';
import type { Registration } from '../client/wire.ts';

/** Report on an environment that the server accepted. */
export function registrationReport({
  env_id: envId,
  kind,
  revision,
  durable,
  report,
}: Registration): HTMLElement {
  const { configurations, episodes, steps } = report;
  return h(
    'div',
    { class: 'stack report' },
    h(
      'p',
      {},
      h('span', { class: 'chip good' }, 'accepted'),
      ' ',
      h('code', {}, envId),
      `, ${kind}, revision ${revision}.`,
    ),
    h(
      'p',
      {},
      `The checker played ${count(episodes, 'episode')} of ${count(configurations, 'configuration')}, ${count(steps, 'step')} in all, and found nothing wrong.`,
    ),
    h(
      'p',
      { class: 'hint' },
      durable
        ? 'It is stored and will be there after a restart.'
        : 'It is lost when the server stops: the server was started without --data.',
    ),
    h('p', {}, h('a', { class: 'button primary', href: formatAddress({ view: 'play', envId }) }, 'Play it')),
  );
}

const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? '' : 's'}`;
