import type { Json } from './json.ts';

/** Separator between the actions of one answer. */
export const ACTION_SEPARATOR = '||';

/** Misplaced tags and chat markers, which are removed everywhere in a response. */
const SPECIAL_TOKENS: readonly string[] = [
  '<think>',
  '</think>',
  '<answer>',
  '</answer>',
  '<|im_start|>',
  '<|im_end|>',
];

/** Format of a response. */
export interface ResponseFormat {
  /** The answer must follow `<think>…</think>`, with only white space between. */
  readonly think: boolean;
  /** Actions kept of one answer; further ones are dropped without penalty. */
  readonly maxActions: number;
  /** `<ans>…</ans>` counts as `<answer>…</answer>`; true by default. */
  readonly acceptShortTag?: boolean;
}

export interface ParsedResponse {
  /** The response had the tags requested. */
  readonly wellFormed: boolean;
  /** The response rebuilt from its parts, as histories show it; the raw text where tags are missing. */
  readonly cleaned: string;
  /** Text between the think tags; empty without them. */
  readonly thinking: string;
  /** At most `maxActions` actions as written, trimmed, without blanks. */
  readonly actions: readonly string[];
}

const THINK_THEN_ANSWER = /<think>(.*?)<\/think>\s*<answer>(.*?)<\/answer>/s;
const ANSWER_ONLY = /()<answer>(.*?)<\/answer>/s;
const THINK_THEN_ANY = /<think>(.*?)<\/think>\s*(?:<answer>(.*?)<\/answer>|<ans>(.*?)<\/ans>)/s;
const ANY_ONLY = /()(?:<answer>(.*?)<\/answer>|<ans>(.*?)<\/ans>)/s;

/**
 * Reads `<think>…</think><answer>a || b</answer>`: the first match counts, tags are case-sensitive, text before and
 * after is ignored (rule of RAGEN's context manager).
 * @example
 * parseResponse('<think>go</think><answer>Up || Down</answer>', { think: true, maxActions: 2 }).actions; // ['Up',
 * 'Down']
 */
export function parseResponse(raw: string, format: ResponseFormat): ParsedResponse {
  const short = format.acceptShortTag ?? true;
  const pattern = format.think
    ? short
      ? THINK_THEN_ANY
      : THINK_THEN_ANSWER
    : short
      ? ANY_ONLY
      : ANSWER_ONLY;
  const match = pattern.exec(raw);
  if (!match) return { wellFormed: false, cleaned: raw, thinking: '', actions: [] };

  const thinking = strip(match[1]);
  let answer = strip(match[2] ?? match[3]);
  let actions = answer
    .split(ACTION_SEPARATOR)
    .map(action => action.trim())
    .filter(action => action !== '');
  if (actions.length > format.maxActions) {
    actions = actions.slice(0, format.maxActions);
    answer = actions.join(` ${ACTION_SEPARATOR} `);
  }
  const cleaned = format.think
    ? `<think>${thinking}</think><answer>${answer}</answer>`
    : `<answer>${answer}</answer>`;
  return { wellFormed: true, cleaned, thinking, actions };
}

function strip(text: string): string {
  let out = text;
  for (const token of SPECIAL_TOKENS) {
    if (out.includes(token)) out = out.replaceAll(token, '');
    out = out.trim();
  }
  return out.trim();
}

/** Action names of a discrete space: the action of `names[i]` is `start + i`. */
export interface ActionNames {
  readonly names: readonly string[];
  readonly start: number;
}

/**
 * Converts written actions to the environment's: names become ids regardless of case, unknown ones are dropped. An
 * environment without names reads text, so every action passes as written.
 */
export function mapActions(actions: readonly string[], names?: ActionNames): readonly Json[] {
  if (!names) return actions;
  const mapped: Json[] = [];
  for (const action of actions) {
    const wanted = action.toLowerCase();
    const index = names.names.findIndex(name => name.toLowerCase() === wanted);
    if (index >= 0) mapped.push(names.start + index);
  }
  return mapped;
}

/** True if the format penalty applies: once a turn, when a kept action is unknown or none is valid. */
export function isPenalized(written: number, valid: number): boolean {
  return valid === 0 || valid !== written;
}
