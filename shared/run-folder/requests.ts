import { isObject, type Json } from '../json.ts';

/** Tags and notes of people about a run, in `annotations.json` of its folder. */
export interface Annotations {
  readonly tags: readonly string[];
  readonly note: string;
  /** Archived runs are hidden from tables by default. */
  readonly archived: boolean;
}

export const NO_ANNOTATIONS: Annotations = { tags: [], note: '', archived: false };
const MAX_TAGS = 16;
const MAX_TAG_LENGTH = 40;
export const MAX_NOTE_LENGTH = 2000;
/** Largest request or file in bytes. */
export const MAX_ANNOTATIONS_BYTES = 16 * 1024;

/** Tags are search words, so they contain no spaces. */
const TAG = /^[^\s,]+$/;

/** The fault of a value that should be annotations; undefined when it is valid. */
export function annotationsProblem(value: unknown): string | undefined {
  if (!isObject(value)) return 'the body must be a JSON object';
  const { tags, note, archived, ...others } = value;
  const unknown = unknownKey(others, 'tags, note, archived');
  if (unknown !== undefined) return unknown;
  if (!Array.isArray(tags) || tags.length > MAX_TAGS)
    return `\`tags\` must be a list of at most ${MAX_TAGS} tags`;
  if (!tags.every(tag => typeof tag === 'string' && tag.length <= MAX_TAG_LENGTH && TAG.test(tag)))
    return `\`tags\`: each must be text of 1 to ${MAX_TAG_LENGTH} characters without spaces and commas`;
  if (new Set(tags).size < tags.length) return '`tags` has one of them twice';
  if (typeof note !== 'string' || note.length > MAX_NOTE_LENGTH)
    return `\`note\` must be text of at most ${MAX_NOTE_LENGTH} characters`;
  return typeof archived === 'boolean' ? undefined : '`archived` must be true or false';
}

/** Folder in a run folder that holds a file `ID.json` for each pending command to the trainer. */
export const CONTROL_FOLDER = 'control';
export const CONTROL_ACTIONS = ['stop', 'checkpoint', 'schedule'] as const;
export type ControlAction = (typeof CONTROL_ACTIONS)[number];

/** Settings of `training` that a running trainer can change; the run's config keeps its values. */
export const SCHEDULE_KEYS = ['validate_every', 'checkpoint_every', 'stop_after'] as const;
export type Schedule = { readonly [key in (typeof SCHEDULE_KEYS)[number]]?: number };

/** A command to the trainer of a run. */
export interface ControlCommand {
  /** An id that the sender chooses: a command with a known id is not carried out again. */
  readonly id: string;
  /** `started_at` of the session it is meant for: a resumed run ignores commands to its earlier sessions. */
  readonly session: string;
  readonly action: ControlAction;
  /** Changes made by the action `schedule`. */
  readonly schedule?: Schedule;
}

/** Largest command in bytes. */
export const MAX_CONTROL_BYTES = 2048;
/** Most pending commands of one trainer. */
export const MAX_WAITING_COMMANDS = 16;
/** Number of remembered command ids. */
export const MAX_REMEMBERED_COMMANDS = 1000;
const ID = /^[\w-]{8,64}$/;
const COMMAND_FILE = /^[\w-]{8,64}\.json$/;
const MAX_SESSION_LENGTH = 64;
const MAX_COUNT = 1_000_000_000;

/** True for a valid name of a command file. */
export const isCommandFile = (name: string): boolean => COMMAND_FILE.test(name);

/** The fault of a value that should be a command; undefined when it is valid. */
export function controlProblem(value: unknown): string | undefined {
  if (!isObject(value)) return 'the command must be a JSON object';
  const { id, session, action, schedule, ...others } = value;
  const unknown = unknownKey(others, 'id, session, action, schedule');
  if (unknown !== undefined) return unknown;
  if (typeof id !== 'string' || !ID.test(id))
    return '`id` must be 8 to 64 letters, digits, `_` and `-`, another one for each command';
  if (typeof session !== 'string' || session.length > MAX_SESSION_LENGTH)
    return "`session` must be the `started_at` of the run's status";
  if (!CONTROL_ACTIONS.some(known => known === action))
    return `\`action\` must be one of ${CONTROL_ACTIONS.join(', ')}`;
  return action === 'schedule'
    ? scheduleProblem(schedule)
    : schedule === undefined
      ? undefined
      : '`schedule` belongs to the action `schedule`';
}

function scheduleProblem(value: unknown): string | undefined {
  if (!isObject(value)) return `\`schedule\` must be an object with some of ${SCHEDULE_KEYS.join(', ')}`;
  const entries = Object.entries(value);
  if (entries.length === 0) return `\`schedule\` must have some of ${SCHEDULE_KEYS.join(', ')}`;
  for (const [key, count] of entries) {
    if (!SCHEDULE_KEYS.some(known => known === key))
      return `\`schedule.${key.slice(0, 100)}\`: unknown key; known here: ${SCHEDULE_KEYS.join(', ')}`;
    if (!(Number.isInteger(count) && Number(count) >= 1 && Number(count) <= MAX_COUNT))
      return `\`schedule.${key}\` must be a whole number from 1 to ${MAX_COUNT}`;
  }
  return undefined;
}

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
  const { action, file, index, turn, step = 0, prompt, actions, ...others } = value;
  const unknown = unknownKey(others, 'action, file, index, turn, step, prompt, actions');
  if (unknown !== undefined) return unknown;
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

/** The fault of further keys; undefined where there are none. */
function unknownKey(others: object, known: string): string | undefined {
  const [unknown] = Object.keys(others);
  return unknown === undefined
    ? undefined
    : `\`${unknown.slice(0, 100)}\`: unknown key; known here: ${known}`;
}
