import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import type { EpisodeRecord, SampleRecord, TurnRecord } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';

/** Names of a turn's actions. */
export function actionNames({ actions, action_names: names }: TurnRecord): readonly string[] {
  return actions.map(
    (action, i) => names?.[i] ?? (typeof action === 'string' ? action : JSON.stringify(action)),
  );
}

/** The actions of a turn, in a line. */
export function actionsOf(turn: TurnRecord): string {
  return turn.actions.length === 0 ? 'nothing, no action was valid' : actionNames(turn).join(', ');
}

/** The actions that an episode took before a turn; those that the environment did not know took a step as well. */
export const actionsBefore = ({ turns }: EpisodeRecord, at: number): readonly Json[] =>
  turns.slice(0, at).flatMap(({ sent, actions }) => sent ?? actions);

/** [row, col] offset of each direction, by the names that grids use. */
const DIRECTIONS: { readonly [name: string]: readonly [number, number] } = {
  up: [-1, 0],
  down: [1, 0],
  left: [0, -1],
  right: [0, 1],
};
const ANGLES: { readonly [name: string]: number } = { right: 0, down: 90, left: 180, up: 270 };

/** An arrow for the name of a direction; empty for other names. */
export function Arrow({ name }: { readonly name: string }) {
  const angle = ANGLES[name.toLowerCase()];
  if (angle === undefined) return null;
  return html`<svg class="arrow" viewBox="0 0 12 12" width="12" height="12" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round"><path transform="rotate(${angle} 6 6)" d="M1.5 6h8.5M6.5 2.5 10 6l-3.5 3.5" /></svg>`;
}

/** A state before or after an action. */
export interface ShownState {
  readonly structured?: Json;
  readonly text?: string;
  /** The action that led here, and what chance made of it; absent before the turn. */
  readonly caption?: string;
  readonly slipped?: string;
}

/** The states of a turn: before it, after each recorded action, and after it. */
export function statesOf({ turns, final_structured, final_state }: EpisodeRecord, at: number): ShownState[] {
  const turn = turns[at];
  const next = turns[at + 1];
  const last = next
    ? { structured: next.structured, text: next.state }
    : { structured: final_structured, text: final_state };
  const names = actionNames(turn);
  const before: ShownState = { structured: turn.structured, text: turn.state };
  if (turn.between?.length !== names.length - 1) {
    const caption = names.length === 0 ? 'no valid action' : names.join(', ');
    return [before, { ...last, caption, ...(names.length === 1 ? slip(before, last, names[0]) : {}) }];
  }
  const after = [...turn.between.map(structured => ({ structured })), last];
  return [
    before,
    ...after.map((state, i) => ({
      ...state,
      caption: names[i],
      ...slip(i === 0 ? before : after[i - 1], state, names[i]),
    })),
  ];
}

/** The slip of a move on ice; empty on boards without holes, or where the move was as intended. */
function slip(before: ShownState, after: ShownState, name: string): { readonly slipped?: string } {
  const [from, to] = [before.structured, after.structured];
  const meant = DIRECTIONS[name.toLowerCase()];
  if (!meant || !isLake(from) || !isLake(to)) return {};
  const moved = [to.player[0] - from.player[0], to.player[1] - from.player[1]];
  if (moved[0] === meant[0] && moved[1] === meant[1]) return {};
  const edge = [from.player[0] + meant[0], from.player[1] + meant[1]];
  const blocked = edge[0] < 0 || edge[1] < 0 || edge[0] >= from.rows || edge[1] >= from.cols;
  if (moved[0] === 0 && moved[1] === 0) return blocked ? {} : { slipped: 'slid into the edge' };
  const went = Object.entries(DIRECTIONS).find(([, [row, col]]) => row === moved[0] && col === moved[1])?.[0];
  return went === undefined ? {} : { slipped: `slid ${went}` };
}

interface Lake extends JsonObject {
  readonly rows: number;
  readonly cols: number;
  readonly player: number[];
  readonly holes: Json[];
}

const isLake = (state: unknown): state is Lake =>
  isObject(state) &&
  typeof state.rows === 'number' &&
  typeof state.cols === 'number' &&
  Array.isArray(state.player) &&
  Array.isArray(state.holes);

/** A number about each turn: of the critic where its response begins, and the mean advantage of its tokens. */
export function turnNumbers(turn: TurnRecord, sample: SampleRecord | undefined) {
  const [start, end] = turn.tokens;
  if (!sample || end <= start) return {};
  const advantages = sample.advantages?.slice(start, end).filter((_, i) => sample.mask[start + i] === 1);
  return {
    ...(sample.values ? { value: sample.values[start] } : {}),
    ...(advantages?.length ? { advantage: advantages.reduce((a, b) => a + b, 0) / advantages.length } : {}),
  };
}

/** The sampled token of an episode with the least probability; undefined where nothing was sampled. */
export function leastLikely({ turns, samples }: EpisodeRecord) {
  let found: { turn: number; at: number; logProb: number } | undefined;
  for (const [turn, { sample, tokens }] of turns.entries()) {
    const at = leastLikelyIn(samples[sample], tokens);
    const logProb = at === undefined ? 0 : samples[sample].log_probs[at];
    if (at !== undefined && (!found || logProb < found.logProb)) found = { turn, at, logProb };
  }
  return found;
}

/** The place of the trained token with the least probability in a range of a sample. */
export function leastLikelyIn(sample: SampleRecord | undefined, [start, end]: readonly [number, number]) {
  let found: number | undefined;
  for (let at = start; sample && at < end; at++)
    if (sample.mask[at] === 1 && (found === undefined || sample.log_probs[at] < sample.log_probs[found]))
      found = at;
  return found;
}
