import { type TProperties, type TSchema, Type } from 'typebox';
import { Compile } from 'typebox/compile';
import type { TLocalizedValidationError } from 'typebox/error';
import { Problem, type Violation } from '../../shared/problems.ts';
import { DEEPEST_JSON, faultOf, type JsonLimits } from '../custom/json-limits.ts';
import type { Operation } from './operation.ts';
import { RequestKey } from './schemas.ts';

const MOST_VIOLATIONS = 20;

/**
 * A compiled check.
 * @throws Problem `invalid_request` with a violation for every fault
 */
export type Check = (value: unknown) => void;

/** The size of a request is bounded by the limit of its body. */
const INPUT_LIMITS: JsonLimits = {
  depth: DEEPEST_JSON,
  bytes: Number.POSITIVE_INFINITY,
  keys: Number.POSITIVE_INFINITY,
};

/** Compiles the check of a schema. */
export function compileCheck(schema: TSchema, what: string): Check {
  const validator = Compile(schema);
  return value => {
    if (validator.Check(value)) return;
    const violations = violationsOf(validator.Errors(value), schema);
    throw new Problem('invalid_request', `${what}: ${violations[0].detail}`, { violations });
  };
}

/**
 * Compiles the check of an operation's input. What passes costs little: keys are looked up in a set, which is
 * several times faster than what a closed schema compiles to; only what does not pass is looked at closely.
 */
export function compileInputCheck(operation: Operation, door: 'rest' | 'frame'): Check {
  const properties = inputProperties(operation, door);
  const known = new Set(Object.keys(properties));
  const quick = Compile(Type.Object(properties));
  const thorough = compileCheck(Type.Object(properties, { additionalProperties: false }), operation.name);
  return value => {
    const input = value as { [key: string]: unknown };
    let closed = true;
    for (const key in input) {
      if (!known.has(key)) closed = false;
      else refuseOutOfBounds(operation.name, key, input[key]);
    }
    if (!closed || !quick.Check(input)) thorough(input);
  };
}

/** An operation's input as one flat object; frames and batch items add their envelope. */
function inputProperties(operation: Operation, door: 'rest' | 'frame'): TProperties {
  return {
    ...operation.params.properties,
    ...operation.query.properties,
    ...operation.body.properties,
    ...(operation.keyed && { request_key: Type.Optional(RequestKey) }),
    ...(door === 'frame' && {
      id: Type.Optional(Type.Union([Type.String(), Type.Integer()])),
      op: Type.String(),
    }),
  };
}

/** @throws Problem `invalid_request` for what is nested too deep, no finite number or no Unicode text */
function refuseOutOfBounds(operation: string, key: string, value: unknown): void {
  if (typeof value === 'string' ? value.isWellFormed() : typeof value !== 'object' || value === null) return;
  const fault = faultOf(value, INPUT_LIMITS);
  if (!fault) return;
  const pointer = `/${key}${fault.pointer}`;
  throw new Problem('invalid_request', `${operation}: ${pointer} ${fault.message}`, {
    violations: [{ pointer, detail: fault.message }],
  });
}

function violationsOf(errors: readonly TLocalizedValidationError[], schema: TSchema): Violation[] {
  const violations: Violation[] = [];
  for (const error of errors) {
    // A closed object reports each unknown key a second time as a value of the schema `false`.
    if (error.keyword === 'boolean') continue;
    violations.push(...violationsOfError(error, schema));
    if (violations.length >= MOST_VIOLATIONS) break;
  }
  return violations.length > 0 ? violations : [{ pointer: '', detail: 'does not fit the schema' }];
}

function violationsOfError(error: TLocalizedValidationError, schema: TSchema): Violation[] {
  const at = error.instancePath;
  switch (error.keyword) {
    case 'additionalProperties': {
      const known = Object.keys(subschema(schema, error.schemaPath)?.properties ?? {});
      return error.params.additionalProperties.map(key => ({
        pointer: `${at}/${escapePointer(key)}`,
        detail: `unknown key "${key}"${known.length > 0 ? `; known are ${known.join(', ')}` : ''}`,
      }));
    }
    case 'required':
      return error.params.requiredProperties.map(key => ({
        pointer: `${at}/${escapePointer(key)}`,
        detail: `"${key}" is required`,
      }));
    case 'enum':
      return [{ pointer: at, detail: `must be one of ${error.params.allowedValues.join(', ')}` }];
    default:
      return [{ pointer: at, detail: `${at === '' ? 'the request' : at.slice(1)} ${error.message}` }];
  }
}

function subschema(schema: TSchema, path: string): { properties?: object } | undefined {
  let node: unknown = schema;
  for (const part of path.split('/').slice(1)) {
    node = (node as { [key: string]: unknown } | undefined)?.[
      part.replaceAll('~1', '/').replaceAll('~0', '~')
    ];
  }
  return node as { properties?: object } | undefined;
}

function escapePointer(key: string): string {
  return key.replaceAll('~', '~0').replaceAll('/', '~1');
}
