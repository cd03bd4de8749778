import { render } from 'preact';
import type { Json } from '../../../shared/json.ts';
import { Board, boardKindOf } from '../../boards/board.ts';
import { fill, h } from '../../components/element.ts';
import { html } from '../../components/html.ts';
import type { Observation, Schemas } from '../client/wire.ts';
import { actionRemark, episodeStatus, formatNumber, formatValue } from './format.ts';

/** State that the figures and the board show. */
export interface Situation {
  readonly step: number;
  readonly steps: number;
  readonly observation: Observation;
  /** The state as plain data, where it is known. */
  readonly structured: unknown;
  readonly action?: unknown;
  readonly reward?: number;
  readonly totalReward: number;
  /** Absent where it is shown elsewhere. */
  readonly seed?: number | null;
  readonly terminated?: boolean;
  readonly truncated?: boolean;
  readonly info: Schemas['Info'];
  /** Takes an action where the board is clickable. */
  readonly act?: (action: Json) => void;
}

/** Boards that show no more than the text does, or all that it says. */
const TEXTUAL: ReadonlySet<string> = new Set(['plain-text']);

/** A state as its player sees it: board, text, the numbers of the last step. Its parts keep their places. */
export class BoardView {
  readonly #place = h('div', { class: 'board-place' });
  readonly #text = h('pre', {
    class: 'observation',
    tabindex: 0,
    role: 'region',
    'aria-label': 'Observation',
  });
  readonly textElement = h(
    'details',
    { class: 'as-text' },
    h('summary', {}, 'Observation as text'),
    this.#text,
  );
  readonly #info = h('dl', { class: 'facts info' });
  /** The environment's `info` on the last step. */
  readonly infoElement = h('details', { class: 'info-box' }, h('summary', {}, 'Info'), this.#info);
  readonly figures = h('dl', { class: 'figures' });
  /** Element that receives keys; it contains the board. */
  readonly focusTarget = h(
    'div',
    { class: 'state', tabindex: -1, role: 'group', 'aria-label': 'Board' },
    this.#place,
  );

  /** Which kind of board is shown. */
  kind = 'plain-text';

  show(situation: Situation): void {
    const { step, steps, observation, structured, action, reward, totalReward, seed, info } = situation;
    const text = formatValue(observation, 2);
    this.#text.textContent = text;
    this.kind = boardKindOf(structured).name;
    this.textElement.hidden = TEXTUAL.has(this.kind);
    render(html`<${Board} state=${structured} text=${text} act=${situation.act} />`, this.#place);
    const status = episodeStatus(situation);
    const said = action === undefined ? '–' : formatValue(action).replaceAll(/\s+/g, ' ');
    fill(
      this.figures,
      figure('Step', h('span', {}, step, h('small', {}, ` of ${steps}`))),
      figure('Action', h('span', { title: said }, said), actionRemark(info)),
      figure('Return', formatNumber(totalReward)),
      figure('Episode', h('span', { class: `chip ${status.tone}` }, status.text)),
      figure('Reward', reward === undefined ? '–' : formatNumber(reward)),
      seed !== undefined && figure('Seed', seed === null ? 'none' : String(seed)),
    );
    const entries = Object.entries(info);
    this.infoElement.hidden = entries.length === 0;
    fill(
      this.#info,
      ...entries.map(([name, value]) =>
        h('div', {}, h('dt', {}, name), h('dd', { class: 'code' }, formatValue(value))),
      ),
    );
  }
}

function figure(name: string, value: string | Node, remark = ''): HTMLDivElement {
  const note = remark !== '' && h('span', { class: 'chip warn' }, remark);
  return h('div', { 'data-figure': name }, h('dt', {}, name, note), h('dd', {}, value));
}
