import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { Problem } from '../../problems.ts';
import type { StepResult } from '../../sessions/episodes/episode.ts';
import { LiveResult } from '../../sessions/episodes/live-result.ts';
import type { OperationInput } from '../declaration.ts';
import type { Operation, Services } from '../operation.ts';
import { OPERATIONS } from '../table.ts';
import { execute, type OperationCall } from './execute.ts';
import { compileInputCheck, type InputCheck } from './validation.ts';
import { WrittenResult } from './written-result.ts';

/** Characters that are repeated of what is not known. */
const MAX_SHOWN_LENGTH = 100;

/** Makes the JSON text of an operation's result. */
export type Serialize = (result: unknown) => string;

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

/** The serializer of an operation: written out for the one that runs all the time. */
export function serializerOf(operation: Operation): Serialize {
  const serialize = operation.name === 'step' ? (serializeStep as Serialize) : JSON.stringify;
  return result => (result instanceof WrittenResult ? result.text : serialize(result));
}

function serializeStep(result: StepResult): string {
  const key = result.state_key === undefined ? '' : `,"state_key":"${result.state_key}"`;
  return `${LiveResult.head(result)}${result.step},"observation":${JSON.stringify(result.observation)}${key}${outcomeText(result)}`;
}

interface KnownOutcome {
  readonly reward: number;
  readonly terminated: boolean;
  readonly truncated: boolean;
  readonly text: string;
}

/** Environments share their frozen `info` objects between steps, so the text of an outcome is made once for many. */
const knownOutcomes = new WeakMap<object, KnownOutcome>();

/** Text of a result after the observation. */
function outcomeText({ reward, terminated, truncated, info }: StepResult): string {
  const known = knownOutcomes.get(info);
  if (known?.reward === reward && known.terminated === terminated && known.truncated === truncated) {
    return known.text;
  }
  const text = `,"reward":${reward},"terminated":${terminated},"truncated":${truncated},"info":${JSON.stringify(info)}}`;
  if (Object.isFrozen(info)) knownOutcomes.set(info, { reward, terminated, truncated, text });
  return text;
}
