import type { Json } from '../../shared/json.ts';
import type { Environment } from './wire.ts';

/** A key that takes an action. */
export interface PlayKey {
  /** As {@link keyOf} names it. */
  readonly name: string;
  /** Its label on buttons. */
  readonly hint: string;
}

/** An offered action, with its key where it has one. */
export interface KeyedAction {
  readonly action: Json;
  readonly key: PlayKey | undefined;
}

/** Most actions shown as buttons; for more, a field with suggestions is handier. */
export const MAX_BUTTONS = 40;

export type ActionSpace =
  | { readonly type: 'Discrete'; readonly n: number; readonly start: number }
  | { readonly type: 'Text'; readonly max_length: number }
  | { readonly type: 'Dict' | 'Json' };

export const spaceOf = (environment: Environment): ActionSpace =>
  environment.action_space.gymnasium as ActionSpace;

/** The actions of an environment, where they can be listed. */
export function actionsOf(environment: Environment): readonly Json[] {
  const space = spaceOf(environment);
  if (space.type !== 'Discrete') return [];
  return environment.actions ?? Array.from({ length: space.n }, (_, index) => space.start + index);
}

/** Actions with their keys; empty where there are too many for buttons. */
export function keyedActions(environment: Environment): readonly KeyedAction[] {
  const actions = actionsOf(environment);
  if (actions.length > MAX_BUTTONS) return [];
  const keys = keysFor(actions.map(String));
  return actions.map((action, index) => ({ action, key: keys[index] }));
}

/** The action of a key. */
export const actionOfKey = (environment: Environment, name: string): Json | undefined =>
  keyedActions(environment).find(({ key }) => key?.name === name)?.action;

const ARROWS: { readonly [direction: string]: PlayKey } = {
  up: { name: 'ArrowUp', hint: '↑' },
  down: { name: 'ArrowDown', hint: '↓' },
  left: { name: 'ArrowLeft', hint: '←' },
  right: { name: 'ArrowRight', hint: '→' },
  north: { name: 'ArrowUp', hint: '↑' },
  south: { name: 'ArrowDown', hint: '↓' },
  west: { name: 'ArrowLeft', hint: '←' },
  east: { name: 'ArrowRight', hint: '→' },
};
/** A letter, perhaps with a mark for the opposite action, as in cube notation. */
const LETTER = /^([A-Za-z])(['’]?)$/;
const DIGITS = '1234567890';

/** The key of every action, by index; undefined where there are more actions than keys. */
export function keysFor(names: readonly string[]): (PlayKey | undefined)[] {
  const arrows = names.map(name => ARROWS[name.toLowerCase()]);
  if (
    arrows.some(Boolean) &&
    new Set(arrows.filter(Boolean).map(key => key.name)).size === arrows.filter(Boolean).length
  ) {
    return withDigits(arrows);
  }
  const letters = names.map(letterKey);
  const found = letters.filter(key => key !== undefined);
  if (found.length === names.length && new Set(found.map(key => key.name)).size === names.length)
    return letters;
  return withDigits(names.map(() => undefined));
}

function letterKey(name: string): PlayKey | undefined {
  const match = LETTER.exec(name);
  if (!match) return undefined;
  const letter = match[1].toLowerCase();
  return match[2] === '' ? { name: letter, hint: letter } : { name: `Shift+${letter}`, hint: `⇧${letter}` };
}

function withDigits(keys: readonly (PlayKey | undefined)[]): (PlayKey | undefined)[] {
  let used = 0;
  return keys.map(key => {
    if (key) return key;
    const digit = DIGITS[used++];
    return digit === undefined ? undefined : { name: digit, hint: digit };
  });
}

/** The name of the pressed key; undefined for a browser shortcut. */
export function keyOf(
  event: Pick<KeyboardEvent, 'key' | 'shiftKey' | 'ctrlKey' | 'altKey' | 'metaKey'>,
): string | undefined {
  if (event.ctrlKey || event.altKey || event.metaKey) return undefined;
  const { key } = event;
  return /^[a-z]$/i.test(key) ? `${event.shiftKey ? 'Shift+' : ''}${key.toLowerCase()}` : key;
}

/** Shortest distance of a swipe, in pixels. */
const MIN_SWIPE = 24;

/** The arrow key of a swipe; undefined for a tap, and for a move without a clear direction. */
export function keyOfSwipe(right: number, down: number): string | undefined {
  const [across, along] = [Math.abs(right), Math.abs(down)];
  if (Math.max(across, along) < MIN_SWIPE || Math.max(across, along) < 1.5 * Math.min(across, along))
    return undefined;
  if (across > along) return right > 0 ? 'ArrowRight' : 'ArrowLeft';
  return down > 0 ? 'ArrowDown' : 'ArrowUp';
}
