import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { Problem } from '../../problems.ts';
import type { OperationInput } from '../declaration.ts';
import type { Operation, Services } from '../operation.ts';
import { OPERATIONS } from '../table.ts';
import { execute, type OperationCall } from './execute.ts';
import { type Serialize, serializerOf } from './serialize.ts';
import { compileInputCheck, type InputCheck } from './validation.ts';

/** Characters that are repeated of what is not known. */
const MAX_SHOWN_LENGTH = 100;

/** An operation with its compiled checks and its serializer. */
export interface CompiledOperation {
  readonly operation: Operation;
  readonly checkRest: InputCheck;
  readonly checkFrame: InputCheck;
  readonly serialize: Serialize;
}

/** Finds, checks and runs operations by name, for frames and batch items of every transport. */
export class Dispatcher {
  readonly services: Services;
  readonly operations: readonly CompiledOperation[];
  readonly #byName: ReadonlyMap<string, CompiledOperation>;
  readonly #reading: ReadonlySet<unknown>;

  constructor(services: Services) {
    this.services = services;
    this.operations = OPERATIONS.map(operation => ({
      operation,
      checkRest: compileInputCheck(operation, 'rest'),
      checkFrame: compileInputCheck(operation, 'frame'),
      serialize: serializerOf(operation),
    }));
    this.#byName = new Map(this.operations.map(compiled => [compiled.operation.name, compiled]));
    const reading = OPERATIONS.filter(({ keyed, method }) => !keyed && method !== 'DELETE');
    this.#reading = new Set(reading.map(({ name }) => name));
  }

  /**
   * The operation a frame or batch item names.
   * @throws Problem `invalid_request` listing those there are
   */
  find(op: unknown, besides: readonly string[] = []): CompiledOperation {
    const compiled = typeof op === 'string' ? this.#byName.get(op) : undefined;
    if (compiled) return compiled;
    const known = [...this.#byName.keys(), ...besides].join(', ');
    const detail =
      op === undefined
        ? `"op" is required; one of ${known}`
        : `unknown op ${typeof op === 'string' ? JSON.stringify(op.slice(0, MAX_SHOWN_LENGTH)) : `of type ${typeof op}`}; known are ${known}`;
    throw new Problem('invalid_request', detail, { violations: [{ pointer: '/op', detail }] });
  }

  /** True if an operation only reads: replies to it acknowledge nothing. */
  reads(op: unknown): boolean {
    return this.#reading.has(op);
  }

  /** Runs a frame or batch item and gives its result, not yet in any form. */
  perform(call: OperationCall, compiled: CompiledOperation, item: OperationInput): MaybePromise<unknown> {
    compiled.checkFrame(item);
    return execute(this.services, call, compiled.operation, item);
  }
}
