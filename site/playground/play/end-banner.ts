import { fill, h } from '../../components/element.ts';
import { endText } from '../../components/ends.ts';
import type { Environment } from '../client/wire.ts';
import { episodeStatus, formatNumber } from '../components/format.ts';
import { type Reference, referencesOf } from '../environments/showcase.ts';
import type { Episode } from './episode.ts';

interface EndBannerActions {
  /** A level that was not seen before. */
  again(): void;
  sameLevel(): void;
  nextSeed(): void;
}

/** Result of an episode and the choices after it, in place of the controls. */
export class EndBanner {
  readonly #words = h('div', {});
  readonly #again: HTMLButtonElement;
  readonly #next: HTMLButtonElement;
  readonly element: HTMLElement;
  /** Episodes shown; figures that come late belong to none but the last. */
  #shown = 0;

  readonly #ends: Environment['ends'];

  constructor({ capabilities, ends }: Environment, actions: EndBannerActions) {
    this.#ends = ends;
    this.#again = h(
      'button',
      { type: 'button', class: 'primary', onclick: () => actions.again() },
      'Play again',
    );
    this.#next = h('button', { type: 'button', onclick: () => actions.nextSeed() }, 'Next seed');
    this.element = h(
      'div',
      { class: 'note end-banner', role: 'group', 'aria-label': 'End of the episode', hidden: true },
      this.#words,
      h(
        'div',
        { class: 'row buttons' },
        this.#again,
        capabilities.seed &&
          h('button', { type: 'button', onclick: () => actions.sameLevel() }, 'Same level'),
        capabilities.seed && this.#next,
      ),
    );
  }

  hide(): void {
    this.#shown++;
    this.element.hidden = true;
  }

  /** @param focus whether what had the focus goes away */
  async show(episode: Episode, isDefault: boolean, focus: boolean): Promise<void> {
    const shown = ++this.#shown;
    const last = episode.moves.at(-1)!;
    const { tone } = episodeStatus(last);
    const success = last.info.success === true;
    const result = success ? 'Success' : 'Not solved';
    const end = last.info.ended_by;
    const headline =
      typeof end === 'string' ? endText(end, this.#ends) : last.truncated ? 'Out of steps' : result;
    const figures = `${headline === result ? '' : `${result}. `}Return ${formatNumber(episode.totalReward)} after ${episode.moves.length} steps.`;
    const say = (references: readonly Reference[]) =>
      fill(
        this.#words,
        h('p', { class: 'title headline' }, headline),
        h('p', {}, figures),
        references.length > 0 &&
          h(
            'p',
            { class: 'fine' },
            references
              .map(({ name, mean_return }) => `${name} ${formatNumber(Number(mean_return.toPrecision(3)))}`)
              .join(', ')
              .replace(/^/, 'On average: '),
          ),
      );
    say([]);
    this.element.className = `note end-banner ${tone}`;
    this.element.hidden = false;
    if (focus) this.#again.focus({ preventScroll: true });
    const references = isDefault ? await referencesOf(episode.environment.env_id) : [];
    if (shown === this.#shown) say(references);
  }
}
