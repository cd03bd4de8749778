import { Component, type VNode } from 'preact';
import { isObject, type Json } from '../../shared/json.ts';
import { html } from '../components/html.ts';
import { bandit } from './bandit.ts';
import type { BoardKind, Drawn } from './board-kind.ts';
import { cube } from './cube.ts';
import { frozenLake } from './frozen-lake.ts';
import { household } from './household.ts';
import { choiceQuestion, countdown, searchedQuestion, triedQuestion } from './questions.ts';
import { shopPage } from './shop-page.ts';
import { sokoban } from './sokoban.ts';
import { spatialRoom } from './spatial-room.ts';
import { sudoku } from './sudoku.ts';
import { plainText, program, proof } from './texts.ts';
import { tiles2048 } from './tiles-2048.ts';

/** Kinds of boards; the first that fits draws a state. */
const KINDS = [
  sokoban,
  frozenLake,
  spatialRoom,
  tiles2048,
  sudoku,
  cube,
  shopPage,
  bandit,
  household,
  choiceQuestion,
  triedQuestion,
  searchedQuestion,
  countdown,
  proof,
  program,
] as const;

/** Kind of board for a state; text for an unknown shape. */
export function boardKindOf(state: unknown): BoardKind<unknown, unknown> {
  const kind = isObject(state) ? KINDS.find(each => each.fits(state)) : undefined;
  return (kind ?? plainText) as unknown as BoardKind<unknown, unknown>;
}

export interface BoardProps {
  /** Structured state: `structured` of a session, or an observation in that format. */
  readonly state: unknown;
  /** The observation as text, shown where there is no drawing for the state. */
  readonly text?: string;
  /** Takes an action; absent where the board is only viewed. */
  readonly act?: (action: Json) => void;
}

/** A state without a previous one: the first that `Board` shows. */
export function drawBoard({ state, text, act }: BoardProps): VNode {
  const kind = boardKindOf(state);
  return kind.draw(state, { memory: kind.track?.(state, undefined), text, act });
}

/** A changing state: pieces slide from their places in the previous state. */
export class Board extends Component<BoardProps> {
  #kind: BoardKind<unknown, unknown> | undefined;
  #drawn: Drawn<unknown, unknown> | undefined;
  /** A state that looked like one of a kind and could not be drawn as it. */
  #broken: unknown;

  override componentDidCatch(): void {
    this.#broken = this.#drawn?.state;
    this.forceUpdate();
  }

  override render({ state, text, act }: BoardProps): VNode {
    if (this.#broken !== undefined && this.#broken !== state) this.#broken = undefined;
    try {
      return this.#draw({ state, text, act });
    } catch {
      this.#broken = state;
      return this.#draw({ state, text, act });
    }
  }

  #draw({ state, text, act }: BoardProps): VNode {
    const kind = this.#broken === undefined ? boardKindOf(state) : boardKindOf(undefined);
    const before = kind === this.#kind ? this.#drawn : undefined;
    if (before?.state !== state || !before) {
      this.#drawn = { state, memory: kind.track?.(state, before) };
      this.#kind = kind;
    }
    return html`<div class="board" data-kind=${kind.name}>
      ${kind.draw(state, { memory: this.#drawn!.memory, text, act })}
    </div>`;
  }
}
