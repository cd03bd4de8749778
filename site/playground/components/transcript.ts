import { fill, h } from '../../components/element.ts';
import type { PlayedStep } from '../play/episode.ts';
import { actionRemark, episodeStatus, formatNumber, formatValue } from './format.ts';

/** Rows that are shown; a browser need not hold thousands. */
const MAX_ROWS = 200;

/** The steps taken, the last one first. */
export class Transcript {
  readonly #rows = h('tbody', {});
  readonly #more = h('p', { class: 'fine' });
  readonly element = h(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Steps taken' },
    h(
      'table',
      {},
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          h('th', { scope: 'col', class: 'number' }, 'Step'),
          h('th', { scope: 'col' }, 'Action'),
          h('th', { scope: 'col', class: 'number' }, 'Reward'),
          h('th', { scope: 'col' }, h('span', { class: 'visually-hidden' }, 'Remarks')),
        ),
      ),
      this.#rows,
    ),
    this.#more,
  );

  show(moves: readonly PlayedStep[]): void {
    const first = Math.max(0, moves.length - MAX_ROWS);
    fill(
      this.#rows,
      ...moves
        .slice(first)
        .map((move, index) => row(move, first + index + 1))
        .reverse(),
    );
    fill(this.#more, moves.length === 0 ? 'None yet.' : first > 0 && `${first} earlier ones are not shown.`);
  }
}

function row(move: PlayedStep, step: number): HTMLTableRowElement {
  return h(
    'tr',
    {},
    h('td', { class: 'number' }, step),
    h('td', { class: 'cut' }, formatValue(move.action)),
    h('td', { class: 'number' }, formatNumber(move.reward)),
    h('td', {}, remark(move)),
  );
}

/** Remark on a step next to its reward; empty for an ordinary step. */
export function remark(move: PlayedStep): string {
  return move.terminated || move.truncated ? episodeStatus(move).text : actionRemark(move.info);
}
