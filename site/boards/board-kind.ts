import type { VNode } from 'preact';
import type { Json, JsonObject } from '../../shared/json.ts';
import { html } from '../components/html.ts';

/** Input for drawing a board, in addition to its state. */
export interface BoardContext<Memory> {
  readonly memory: Memory;
  /** Takes an action; absent where the board is only viewed. */
  readonly act?: (action: Json) => void;
  /** The observation as text, where known. */
  readonly text?: string;
}

/** A drawn state, and the names of its pieces. */
export interface Drawn<State, Memory> {
  readonly state: State;
  readonly memory: Memory;
}

/**
 * Draws states of one shape: pure functions without DOM globals, so that they also run in Node. States are recognized by
 * shape, so copies of an environment under other names are drawn, too.
 */
export interface BoardKind<State = unknown, Memory = undefined> {
  readonly name: string;
  /** True if the structured state of an environment has this shape. */
  fits(state: JsonObject): boolean;
  /** Names the pieces of a state, so that a moved piece keeps its name and can slide. */
  track?(state: State, before: Drawn<State, Memory> | undefined): Memory;
  draw(state: State, context: BoardContext<Memory>): VNode;
}

/** True if an object has all these keys. */
export function has(state: JsonObject, ...keys: readonly string[]): boolean {
  return keys.every(key => Object.hasOwn(state, key));
}

const MAX_SIDE = 200;

/** True for a count of cells, tests or the like that is small enough to draw. */
export const isSide = (value: unknown): boolean =>
  Number.isInteger(value) && Number(value) > 0 && Number(value) <= MAX_SIDE;

/** `transform` of a piece at a position, in user units of its board. */
export const at = (x: number, y: number): { readonly transform: string } => ({
  transform: `translate(${x}px, ${y}px)`,
});

interface Actor {
  readonly act?: (action: Json) => void;
}

/**
 * A row of actions as buttons; plain words where the board is only viewed.
 * @param prefix part of each action that its button omits
 */
export function actionButtons(actions: readonly string[], { act }: Actor, prefix = ''): VNode {
  const text = (action: string) => action.slice(prefix.length);
  return html`<div class="row" role=${act ? 'group' : undefined} aria-label=${act ? 'Actions of the board' : undefined}>
    ${actions.map(action =>
      act
        ? html`<button key=${action} type="button" class="small" onClick=${() => act(action)}>${text(action)}</button>`
        : html`<span key=${action} class="chip">${text(action)}</span>`,
    )}
  </div>`;
}

/** A row of numbers or words as cards. */
export function cards(texts: readonly (string | number)[]): VNode {
  return html`<ul class="row">${texts.map(text => html`<li class="number-card">${text}</li>`)}</ul>`;
}
