import type { JsonObject } from '../../../shared/json.ts';
import { isObject } from '../../custom/answer.ts';
import { parseJson } from '../replies/content.ts';
import { extras, InvalidMessage, missing, notObject } from './faults.ts';

const MAX_ID_LENGTH = 255;
/** A misspelled type is repeated up to here. */
const MAX_SHOWN_LENGTH = 60;

/** Message of a client over the WebSocket. */
export type OpenEnvMessage =
  | { readonly type: 'reset' | 'step' | 'mcp'; readonly data: JsonObject }
  | { readonly type: 'state' | 'close' };

/** Messages with `data`, by type. */
const DATA: { readonly [type in OpenEnvMessage['type']]: 'optional' | 'required' | 'none' } = {
  reset: 'optional',
  step: 'required',
  mcp: 'required',
  state: 'none',
  close: 'none',
};

/** The type of a message is none of those there are. */
export class UnknownType extends Error {}

/**
 * Reads a frame.
 * @throws Problem `bad_json`; UnknownType; InvalidMessage
 */
export function readMessage(text: string): OpenEnvMessage {
  const frame = parseJson(text);
  if (!isObject(frame)) throw new InvalidMessage([notObject([])]);
  const { type = '' } = frame;
  if (typeof type !== 'string' || !Object.hasOwn(DATA, type)) {
    const known = Object.keys(DATA).join(', ');
    const named = typeof type === 'string' ? type : JSON.stringify(type);
    throw new UnknownType(`Unknown message type: ${named.slice(0, MAX_SHOWN_LENGTH)}; known are ${known}`);
  }
  const rule = DATA[type as OpenEnvMessage['type']];
  const known = rule === 'none' ? ['type'] : ['type', 'data'];
  const faults = extras(frame, known);
  const { data } = frame;
  if (rule === 'required' && data === undefined) faults.push(missing(['data']));
  else if (rule !== 'none' && data !== undefined && !isObject(data)) faults.push(notObject(['data']));
  if (faults.length > 0) throw new InvalidMessage(faults);
  return rule === 'none'
    ? { type: type as 'state' }
    : { type: type as 'reset', data: (data ?? {}) as JsonObject };
}

/** Request for a reset. */
export interface ResetRequest {
  /** Input of the operation: seed and options. */
  readonly input: JsonObject;
  /** The client's own name for the episode. */
  readonly episodeName?: string;
}

/**
 * Reads the parameters of a reset: `seed`, `episode_id`, and the environment's reset options.
 * @throws InvalidMessage; seed and options are checked by the operation
 */
export function readReset(data: unknown): ResetRequest {
  if (!isObject(data)) throw new InvalidMessage([notObject([])]);
  const { seed, episode_id: name, ...options } = data;
  const given = Object.keys(options).length > 0;
  const input = { ...(seed !== undefined && seed !== null && { seed }), ...(given && { options }) };
  if (name === undefined || name === null) return { input };
  if (typeof name !== 'string' || name.length > MAX_ID_LENGTH) {
    const msg = `Input should be a string of at most ${MAX_ID_LENGTH} characters`;
    throw new InvalidMessage([{ type: 'string_type', loc: ['episode_id'], msg }]);
  }
  return { input, episodeName: name };
}

/** A step as it comes over HTTP. */
export interface StepRequest {
  readonly action: JsonObject;
  readonly timeoutMs?: number;
  /** Comes back in the metadata. */
  readonly requestId?: string;
}

const STEP_FIELDS = ['action', 'timeout_s', 'request_id'];
const MS_PER_S = 1000;

/** @throws InvalidMessage */
export function readStep(body: unknown): StepRequest {
  if (!isObject(body)) throw new InvalidMessage([notObject([])]);
  const { action, timeout_s: timeout, request_id: requestId } = body;
  const faults = extras(body, STEP_FIELDS);
  if (action === undefined) faults.push(missing(['action']));
  else if (!isObject(action)) faults.push(notObject(['action']));
  const hasTimeout = timeout !== undefined && timeout !== null;
  if (hasTimeout && !(typeof timeout === 'number' && timeout > 0)) {
    faults.push({ type: 'greater_than', loc: ['timeout_s'], msg: 'Input should be a number greater than 0' });
  }
  const hasId = requestId !== undefined && requestId !== null;
  if (hasId && !(typeof requestId === 'string' && requestId.length <= MAX_ID_LENGTH)) {
    const msg = `Input should be a string of at most ${MAX_ID_LENGTH} characters`;
    faults.push({ type: 'string_type', loc: ['request_id'], msg });
  }
  if (faults.length > 0) throw new InvalidMessage(faults);
  return {
    action: action as JsonObject,
    ...(hasTimeout && { timeoutMs: (timeout as number) * MS_PER_S }),
    ...(hasId && { requestId: requestId as string }),
  };
}
