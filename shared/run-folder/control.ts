import { isObject } from '../json.ts';

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
  const { id, session, action, schedule, ...others } = value as { readonly [key: string]: unknown };
  const [unknown] = Object.keys(others);
  if (unknown !== undefined)
    return `\`${unknown.slice(0, 100)}\`: unknown key; known here: id, session, action, schedule`;
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
