import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { remembered } from '../../../shared/remembered.ts';
import type { RequestFault } from '../../custom/remote/openenv-protocol.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { jsonSchema } from '../../environments/core/spaces.ts';
import { problemOf } from '../../operations/problems.ts';
import { Problem } from '../../problems.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import { parseJson } from '../replies/content.ts';

/** Field of an action that is a text or a number; OpenEnv's actions are always objects. */
const ACTION = 'action';
/** Field that typed clients always send; environments do not read it. */
const METADATA = 'metadata';

/** An environment's actions in OpenEnv's form. */
export interface ActionForm {
  /** JSON Schema of an action's fields. */
  readonly schema: JsonObject;
  /** True if the action is one field; otherwise the action's fields are the fields. */
  readonly wrapped: boolean;
  /**
   * Converts fields to the environment's action.
   * @throws InvalidMessage for a missing or unknown field
   */
  read(fields: JsonObject): Json;
}

const forms = new WeakMap<Variant, ActionForm>();

/**
 * The form of a variant's actions: an object action keeps its own fields, any other action is in the field `action`.
 * `metadata` is accepted and dropped, unless it is a field of the action.
 */
export function actionForm(variant: Variant): ActionForm {
  return remembered(forms, variant, () => {
    const schema = jsonSchema(variant.environment.spec.actionSpace);
    // OpenEnv's clients take a schema titled `Action` for that of an MCP-only server.
    const title = `${variant.environment.spec.title} action`;
    return schema.type === 'object' ? ownFields(title, schema) : oneField(title, schema, variant);
  });
}

const METADATA_SCHEMA: JsonObject = {
  type: 'object',
  description: 'Accepted and left out.',
  additionalProperties: true,
};

function ownFields(title: string, schema: JsonObject): ActionForm {
  const properties = (schema.properties ?? {}) as JsonObject;
  if (Object.hasOwn(properties, METADATA)) {
    return { schema: { title, ...schema }, wrapped: false, read: fields => fields };
  }
  return {
    schema: {
      title,
      ...schema,
      properties: { ...properties, [METADATA]: METADATA_SCHEMA },
    },
    wrapped: false,
    read({ [METADATA]: _left, ...action }) {
      return action;
    },
  };
}

function oneField(title: string, schema: JsonObject, { environment, config }: Variant): ActionForm {
  const { actionFormat, actions } = environment.describe(config);
  const description = actionFormat ?? (actions && `One of ${actions.join(', ')}.`);
  return {
    schema: {
      title,
      type: 'object',
      required: [ACTION],
      properties: {
        [ACTION]: { ...schema, ...(description !== undefined && { description }) },
        [METADATA]: METADATA_SCHEMA,
      },
      additionalProperties: false,
      examples: [{ [ACTION]: environment.spec.exampleAction }],
    },
    wrapped: true,
    read(fields) {
      const faults = extras(fields, [ACTION, METADATA]);
      if (!Object.hasOwn(fields, ACTION)) faults.unshift(missing([ACTION]));
      if (faults.length > 0) throw new InvalidMessage(faults);
      return fields[ACTION];
    },
  };
}

const MAX_ID_LENGTH = 255;
/** Longest part of an unknown type that an error repeats. */
const MAX_SHOWN_LENGTH = 60;

/** WebSocket message of a client. */
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

/** A message with an unknown type. */
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

/** A step in an HTTP request. */
export interface StepRequest {
  readonly action: JsonObject;
  readonly timeoutMs?: number;
  /** Returned in the metadata. */
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

const INVALID_STATUS = 422;

/** A malformed message or body. */
export class InvalidMessage extends Error {
  readonly faults: readonly RequestFault[];
  /** Problem of the operation, if it found the fault. */
  override readonly cause: Problem | undefined;

  constructor(faults: readonly RequestFault[], cause?: Problem) {
    super(faults.map(({ loc, msg }) => (loc.length > 0 ? `${loc.join('.')}: ${msg}` : msg)).join('; '));
    this.faults = faults;
    this.cause = cause;
  }
}

type FaultLocation = RequestFault['loc'];

export const missing = (loc: FaultLocation): RequestFault => ({
  type: 'missing',
  loc,
  msg: 'Field required',
});

export const notObject = (loc: FaultLocation): RequestFault => ({
  type: 'dict_type',
  loc,
  msg: 'Input should be a valid dictionary',
});

/** Most unknown fields that a reply names. */
const MAX_EXTRAS = 8;

/** @returns the first few fields of an object that are not allowed */
export function extras(given: object, known: readonly string[]): RequestFault[] {
  const msg = `Extra inputs are not permitted; known are ${known.join(', ')}`;
  return Object.keys(given)
    .filter(key => !known.includes(key))
    .slice(0, MAX_EXTRAS)
    .map(key => ({ type: 'extra_forbidden', loc: [key], msg }));
}

/**
 * Runs work on a part of a request.
 * @param location path of that part in the request
 * @param wrapped true if an operation's `action` is a field of that part, false if it is the part itself
 * @throws InvalidMessage for any fault of the part, including faults that an operation found; other errors unchanged
 */
export function within<T>(
  location: FaultLocation,
  wrapped: boolean,
  work: () => MaybePromise<T>,
): MaybePromise<T> {
  const retell = (error: unknown): never => {
    throw located(error, location, wrapped);
  };
  try {
    const result = work();
    return result instanceof Promise ? result.catch(retell) : result;
  } catch (error) {
    return retell(error);
  }
}

function located(error: unknown, location: FaultLocation, wrapped: boolean): unknown {
  if (error instanceof InvalidMessage) {
    const faults = error.faults.map(fault => ({ ...fault, loc: [...location, ...fault.loc] }));
    return new InvalidMessage(faults, error.cause);
  }
  const problem = problemOf(error);
  if (problem.status !== INVALID_STATUS) return error;
  const violations = problem.violations ?? [{ pointer: '', detail: problem.message }];
  const faults = violations.map(({ pointer, detail }) => ({
    type: 'value_error',
    loc: [...location, ...partsOf(pointer, wrapped)],
    msg: detail,
  }));
  return new InvalidMessage(faults, problem);
}

/** An operation's JSON pointer as a location in the fields of a reset or step. */
function partsOf(pointer: string, wrapped: boolean): (string | number)[] {
  const parts = pointer
    .split('/')
    .slice(1)
    .map(part => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .map(part => (/^\d+$/.test(part) ? Number(part) : part));
  const inside = parts[0] === 'options' || (parts[0] === 'action' && !wrapped);
  return inside ? parts.slice(1) : parts;
}

/** A thrown value as an error that the problem handler counts and logs under its code. */
export function countable(error: unknown): unknown {
  if (!(error instanceof InvalidMessage)) return error;
  return error.cause ?? new Problem('invalid_request', error.message);
}
