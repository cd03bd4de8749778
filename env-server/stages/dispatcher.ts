import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';
import {
  type ClientRequest,
  type Operation,
  type OperationInput,
  plainResult,
  type Services,
  type TraceContext,
  WrittenResult,
} from '../operations/operation.ts';
import { OPERATIONS } from '../operations/table.ts';
import { compileInputCheck, type InputCheck } from '../operations/validation.ts';
import { invalidRequest } from '../problems.ts';
import type { Principal } from '../sessions/principal.ts';
import { beginRequest, runner } from './stages.ts';

/** Characters of an unknown name that an error repeats. */
const MAX_SHOWN_LENGTH = 100;

/** An operation with its compiled checks, its serializer and its stages. */
export interface CompiledOperation {
  readonly operation: Operation;
  readonly checkRest: InputCheck;
  readonly checkFrame: InputCheck;
  /** Writes the JSON text of a result. */
  serialize(result: unknown): string;
  /** Runs the operation with validated input. */
  run(request: ClientRequest, input: OperationInput): MaybePromise<unknown>;
}

function compile(operation: Operation, services: Services): CompiledOperation {
  const { serialize = JSON.stringify } = operation;
  return {
    operation,
    checkRest: compileInputCheck(operation, 'rest'),
    checkFrame: compileInputCheck(operation, 'frame'),
    serialize: result => (result instanceof WrittenResult ? result.text : serialize(result)),
    run: runner(operation, services),
  };
}

/** The operations of a server by name, for requests, frames and batch items of every transport. */
export class Dispatcher {
  readonly services: Services;
  readonly operations: readonly CompiledOperation[];
  readonly #byName: ReadonlyMap<string, CompiledOperation>;
  readonly #reading: ReadonlySet<unknown>;

  constructor(services: Services) {
    this.services = services;
    this.operations = OPERATIONS.map(operation => compile(operation, services));
    this.#byName = new Map(this.operations.map(compiled => [compiled.operation.name, compiled]));
    const reading = OPERATIONS.filter(({ keyed, method }) => !keyed && method !== 'DELETE');
    this.#reading = new Set(reading.map(({ name }) => name));
  }

  /**
   * The operation that a frame or batch item names.
   * @throws Problem `invalid_request` listing the valid names
   */
  find(op: unknown, besides: readonly string[] = []): CompiledOperation {
    const compiled = typeof op === 'string' ? this.#byName.get(op) : undefined;
    if (compiled) return compiled;
    const known = [...this.#byName.keys(), ...besides].join(', ');
    const detail =
      op === undefined
        ? `"op" is required; one of ${known}`
        : `unknown op ${typeof op === 'string' ? JSON.stringify(op.slice(0, MAX_SHOWN_LENGTH)) : `of type ${typeof op}`}; known are ${known}`;
    throw invalidRequest('/op', detail);
  }

  /** True if an operation only reads: replies to it acknowledge nothing. */
  reads(op: unknown): boolean {
    return this.#reading.has(op);
  }

  /**
   * Begins a client's request.
   * @throws Problem `draining`
   */
  begin(principal: Principal, trace?: TraceContext): ClientRequest {
    return beginRequest(this.services, principal, trace);
  }

  /**
   * Runs an operation for a client of another protocol, with the checks, limits and metrics of all transports.
   * @throws Problem, or what the environment code threw (see `problemOf`)
   */
  operate<T>(principal: Principal, op: string, input: OperationInput): MaybePromise<T> {
    const request = beginRequest(this.services, principal);
    const { checkFrame, run } = this.find(op);
    const item = { op, ...input };
    checkFrame(item);
    return chain(run(request, item), value => plainResult(value) as T);
  }
}
