import { isObject, type Json } from '../json.ts';

export const CHECKPOINT_ACTIONS = ['ask', 'play_on'] as const;

/** A request of a page to a checkpoint of a run, about the state before a turn of a stored episode. */
export interface CheckpointRequest {
  /** `ask` samples responses to the prompt of the turn, `play_on` plays the episode on from there. */
  readonly action: (typeof CHECKPOINT_ACTIONS)[number];
  /** Trajectory file without its ending, e.g. `train-000010`, and the number of the episode in it, from 0. */
  readonly file: string;
  readonly index: number;
  /** From 0. */
  readonly turn: number;
  /** Step of the checkpoint; the newest where it is absent. */
  readonly step?: number;
  /** For `ask`: text in place of the turn's prompt; what it leaves unchanged keeps its tokens. */
  readonly prompt?: string;
  /** For `play_on`: actions that were taken from there. */
  readonly actions?: readonly Json[];
}

/** The checkpoints that a run keeps. */
export interface KeptCheckpoints {
  /** Their steps, in order. */
  readonly steps: readonly number[];
  /** The step of the best one, where the run keeps it. */
  readonly best?: number;
}

/** A sampled response. */
export interface CheckpointAnswer {
  readonly text: string;
  /** Text and log-probability of each sampled token. */
  readonly tokens: readonly (readonly [text: string, logProb: number])[];
  /** True where the limit on tokens ended it. */
  readonly isCut: boolean;
}

export interface AskReply {
  /** Step of the checkpoint. */
  readonly step: number;
  readonly answers: readonly CheckpointAnswer[];
  /** The new text in a changed prompt; absent where there is none. */
  readonly encoded?: EncodedText;
}

/** A text as the tokenizer encodes it. */
export interface EncodedText {
  readonly tokens: number;
  /** The text of these tokens, where it differs: the vocabulary lacks a word. */
  readonly readAs?: string;
}

export interface PlayOnReply {
  readonly step: number;
  /** Actions of the turns that the checkpoint then played, in order. */
  readonly actions: readonly Json[];
}

/** Longest text of a prompt in UTF-16 units, and largest request in bytes: JSON may write a unit with six. */
const MAX_PROMPT_LENGTH = 131_072;
export const MAX_CHECKPOINT_REQUEST_BYTES = 6 * MAX_PROMPT_LENGTH + 1024;
/** Most actions to play on after. */
const MAX_ACTIONS = 1000;
const MAX_NUMBER = 1_000_000_000;

/** The fault of a value that should be a request; undefined when it is valid. */
export function checkpointProblem(value: unknown): string | undefined {
  if (!isObject(value)) return 'the request must be a JSON object';
  const {
    action,
    file,
    index,
    turn,
    step = 0,
    prompt,
    actions,
    ...others
  } = value as {
    readonly [key: string]: unknown;
  };
  const [unknown] = Object.keys(others);
  if (unknown !== undefined)
    return `\`${unknown.slice(0, 100)}\`: unknown key; known here: action, file, index, turn, step, prompt, actions`;
  if (!CHECKPOINT_ACTIONS.some(known => known === action))
    return `\`action\` must be one of ${CHECKPOINT_ACTIONS.join(', ')}`;
  if (typeof file !== 'string') return '`file` must be the name of a trajectory file, e.g. train-000010';
  for (const [name, number] of Object.entries({ index, turn, step })) {
    if (!Number.isInteger(number) || Number(number) < 0 || Number(number) > MAX_NUMBER)
      return `\`${name}\` must be a whole number from 0 to ${MAX_NUMBER}`;
  }
  if (
    actions !== undefined &&
    (action !== 'play_on' || !Array.isArray(actions) || actions.length > MAX_ACTIONS)
  )
    return `\`actions\` must be a list of at most ${MAX_ACTIONS}, for \`play_on\` alone`;
  if (prompt === undefined) return undefined;
  if (action !== 'ask' || typeof prompt !== 'string') return '`prompt` must be a text, for `ask` alone';
  return promptProblem(prompt);
}

/** The fault of a prompt's text; undefined when it is valid. */
export const promptProblem = ({ length }: string): string | undefined =>
  length === 0
    ? 'the prompt is empty: it needs at least one character'
    : length > MAX_PROMPT_LENGTH
      ? `the prompt has ${length} characters, more than ${MAX_PROMPT_LENGTH}`
      : undefined;
