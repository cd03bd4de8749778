import type { TProperties, TSchema } from 'typebox';
import type { TLocalizedValidationError } from 'typebox/error';
import {
  type Fault,
  faultsOf,
  faultText,
  isBounded,
  oversizeOf,
  withFewUnknown,
} from '../../shared/faults.ts';
import { compiled } from '../../shared/schema/check.ts';
import { closed, Type } from '../../shared/schema/type.ts';
import { DEEPEST_JSON, faultOf, type JsonLimits } from '../custom/json-limits.ts';
import { invalidRequest, Problem, type Violation } from '../problems.ts';
import type { Operation } from './operation.ts';
import { FrameIdSchema, RequestKey } from './schemas/fields.ts';

const MAX_VIOLATIONS = 20;

/**
 * A compiled check.
 * @throws Problem `invalid_request` with a violation for every fault
 */
export type InputCheck = (value: unknown) => void;

/** The body limit bounds the size of a request. */
const INPUT_LIMITS: JsonLimits = {
  depth: DEEPEST_JSON,
  bytes: Number.POSITIVE_INFINITY,
  keys: Number.POSITIVE_INFINITY,
};

/**
 * The check of a schema, compiled on first use.
 * @param advice what to say about unknown keys
 */
export function compileCheck(schema: TSchema, what: string, advice = ''): InputCheck {
  const { check, errors } = compiled(schema);
  return value => {
    refuseOversize(schema, value, what);
    if (check(value)) return;
    const short = withFewUnknown(schema, value);
    const violations = violationsOf(errors(short), schema, short, advice);
    throw new Problem('invalid_request', `${what}: ${violations[0].detail}`, { violations });
  };
}

/**
 * The check of an operation's input, compiled on first use. Valid input is cheap: keys are looked up in a set, several
 * times faster than a compiled closed schema; only invalid input gets the full check.
 */
export function compileInputCheck(operation: Operation, transport: 'rest' | 'frame'): InputCheck {
  const properties = inputProperties(operation, transport);
  const known = new Set(Object.keys(properties));
  const quick = compiled(Type.Object(properties));
  const shut = closed(properties);
  const thorough = compileCheck(shut, operation.name, placeOfOthers(properties));
  const bounded = Object.entries(properties).filter(([, schema]) => isBounded(schema));
  const limits = bounded.map(([key, schema]) => [key, textLimit(schema)] as const);
  return value => {
    const input = value as { [key: string]: unknown };
    let closed = true;
    for (const key in input) {
      if (!known.has(key)) closed = false;
      else refuseOutOfBounds(operation.name, key, input[key]);
    }
    for (const [key, most] of limits) {
      const part = input[key];
      if (typeof part === 'string' ? part.length <= most : typeof part !== 'object') continue;
      refuseOversize(shut, input, operation.name);
      break;
    }
    if (!closed) thorough(withFewUnknown(shut, input));
    else if (!quick.check(input)) thorough(input);
  };
}

/** A text of at most this length fits a schema, as far as it is a text schema; -1 where that says nothing. */
function textLimit(schema: TSchema): number {
  const { type, maxLength, anyOf } = schema as {
    readonly type?: unknown;
    readonly maxLength?: number;
    readonly anyOf?: readonly TSchema[];
  };
  if (anyOf) return Math.max(...anyOf.map(textLimit));
  return type === 'string' && maxLength !== undefined ? maxLength : -1;
}

/** @throws Problem `invalid_request` */
function refuseOversize(schema: TSchema, value: unknown, what: string): void {
  const fault = oversizeOf(schema, value);
  if (!fault) return;
  const violation = violationOf(fault);
  throw new Problem('invalid_request', `${what}: ${violation.detail}`, { violations: [violation] });
}

const violationOf = (fault: Fault, advice = ''): Violation => ({
  pointer: fault.pointer,
  detail: faultText(fault, 'the request') + advice,
});

/** Advice for keys that are often written next to the object they belong in. */
function placeOfOthers(properties: TProperties): string {
  if ('config' in properties) return '; settings of the environment, `preset` among them, belong in "config"';
  return 'definition' in properties ? '; what defines the environment belongs in "definition"' : '';
}

/** An operation's input as one flat object; frames and batch items add their envelope. */
function inputProperties(operation: Operation, transport: 'rest' | 'frame'): TProperties {
  return {
    ...operation.params.properties,
    ...operation.query.properties,
    ...operation.body.properties,
    ...(operation.keyed && { request_key: Type.Optional(RequestKey) }),
    ...(transport === 'frame' && {
      id: Type.Optional(FrameIdSchema),
      op: Type.String(),
    }),
  };
}

/**
 * @throws Problem `invalid_request` for values that are nested too deeply, non-finite numbers, and malformed Unicode
 */
function refuseOutOfBounds(operation: string, key: string, value: unknown): void {
  if (isPlain(value)) return;
  const fault = faultOf(value, INPUT_LIMITS);
  if (!fault) return;
  const pointer = `/${key}${fault.pointer}`;
  throw invalidRequest(pointer, fault.message, `${operation}: ${pointer} ${fault.message}`);
}

/** True for a plain value within the bounds; objects and lists need a closer look. */
function isPlain(value: unknown): boolean {
  switch (typeof value) {
    case 'string':
      return value.isWellFormed();
    // JSON can hold 1e999 and MessagePack NaN, which the journal cannot store.
    case 'number':
      return Number.isFinite(value);
    default:
      return typeof value !== 'object' || value === null;
  }
}

function violationsOf(
  errors: readonly TLocalizedValidationError[],
  schema: TSchema,
  value: unknown,
  advice: string,
): Violation[] {
  const violations = faultsOf(schema, value, errors)
    .slice(0, MAX_VIOLATIONS)
    .map(fault => {
      const isOwnUnknown = fault.key?.isKnown === false && fault.pointer.lastIndexOf('/') === 0;
      return violationOf(fault, isOwnUnknown ? advice : '');
    });
  return violations.length > 0 ? violations : [{ pointer: '', detail: 'does not fit the schema' }];
}
