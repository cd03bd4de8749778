import { fill, h } from '../../../../shared/web/element.ts';
import type { Observation, Schemas } from '../client/wire.ts';
import { actionRemark, episodeStatus, formatNumber, formatValue } from './format.ts';

/** Pictures smaller than this are shown at twice their size, in pixels. */
const SMALL_PICTURE = 260;

/** Actions longer than this are shown in full below the figures, in characters. */
const LONG_ACTION = 30;

/** What the figures next to a state say. */
export interface BoardState {
  readonly step: number;
  readonly steps: number;
  readonly observation: Observation;
  readonly action?: unknown;
  readonly reward?: number;
  readonly totalReward: number;
  /** Absent where it is shown elsewhere. */
  readonly seed?: number | null;
  readonly terminated?: boolean;
  readonly truncated?: boolean;
  readonly info: Schemas['Info'];
}

/** A state as its player sees it: picture, text, the numbers of the last step. */
export class Board {
  readonly #picture = h('img', {
    alt: 'Picture of the state. The observation next to it says the same in text.',
  });
  readonly #frame = h('div', { class: 'picture', hidden: true }, this.#picture);
  readonly #text = h('pre', { class: 'observation' });
  readonly #figures = h('dl', { class: 'figures' });
  readonly #said = h('pre', { class: 'said', tabindex: 0, role: 'region', 'aria-label': 'Action in full' });
  readonly #info = h('dl', { class: 'info' });
  /** What the environment says about the last step. */
  readonly infoElement = h('details', { class: 'info-box' }, h('summary', {}, 'Info'), this.#info);
  /** The place that keys are meant for. */
  readonly focusTarget = h(
    'div',
    { class: 'state', tabindex: 0, role: 'region', 'aria-label': 'State' },
    this.#frame,
    this.#text,
  );
  readonly element = h('div', { class: 'board' }, this.#figures, this.#said, this.focusTarget);
  #address: string | undefined;
  #pictures = 0;

  constructor() {
    this.#picture.addEventListener('load', () => {
      const { naturalWidth, naturalHeight } = this.#picture;
      const { style } = this.#frame;
      const width = naturalWidth < SMALL_PICTURE ? 2 * naturalWidth : naturalWidth;
      style.setProperty('--width', `${width}px`);
      style.setProperty('--ratio', String(naturalWidth / naturalHeight));
    });
  }

  show(situation: BoardState): void {
    const { step, steps, observation, action, reward, totalReward, seed, info } = situation;
    this.#text.textContent = formatValue(observation, 2);
    const stands = episodeStatus(situation);
    const said = action === undefined ? '–' : formatValue(action);
    this.#said.hidden = said.length <= LONG_ACTION;
    this.#said.textContent = said;
    fill(
      this.#figures,
      figure('Step', h('span', {}, step, h('span', { class: 'of' }, ` of ${steps}`))),
      figure('Action', said, actionRemark(info)),
      figure('Reward', reward === undefined ? '–' : formatNumber(reward)),
      figure('Return', formatNumber(totalReward)),
      seed !== undefined && figure('Seed', seed === null ? 'none' : String(seed)),
      figure('Episode', h('span', { class: `chip ${stands.tone}` }, stands.text)),
    );
    const entries = Object.entries(info);
    this.infoElement.hidden = entries.length === 0;
    fill(
      this.#info,
      ...entries.flatMap(([key, value]) => [h('dt', {}, key), h('dd', {}, formatValue(value))]),
    );
  }

  /**
   * Shows a picture when it is there, unless another one was asked for meanwhile.
   * @param step what it is of
   * @param picture undefined where there is none
   */
  async paint(step: number, picture: Promise<Blob | string> | undefined): Promise<void> {
    const turn = ++this.#pictures;
    const painted = await picture;
    if (turn !== this.#pictures) return;
    if (this.#address !== undefined) URL.revokeObjectURL(this.#address);
    this.#address = painted instanceof Blob ? URL.createObjectURL(painted) : undefined;
    this.#frame.hidden = painted === undefined;
    const source = painted instanceof Blob ? this.#address : painted;
    if (source === undefined) this.#picture.removeAttribute('src');
    else this.#picture.src = source;
    this.#picture.dataset.step = String(step);
  }
}

function figure(name: string, value: string | Node, remark = ''): HTMLDivElement {
  const note = remark !== '' && h('span', { class: 'chip warn' }, remark);
  return h('div', {}, h('dt', {}, name, note), h('dd', {}, value));
}
