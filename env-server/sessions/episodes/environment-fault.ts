import { InvalidConfig, InvalidOptions } from '../../environments/core/environment.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { Problem } from '../../problems.ts';
import type { Variant } from './variant.ts';

const MAX_MESSAGE_LENGTH = 500;

/**
 * What an environment threw, as its clients may see it: the first line of its message, never its stack. The cause is
 * kept for the log. Problems, and what is wrong with the client's own settings, stay what they are.
 * @param doing what it was at, e.g. `at step 3`
 */
export function environmentFault(variant: Variant, doing: string, error: unknown): Error {
  if (error instanceof Problem || error instanceof InvalidConfig || error instanceof InvalidOptions)
    return error;
  const message = error instanceof Error ? error.message : String(error);
  const [line] = message.slice(0, MAX_MESSAGE_LENGTH).split('\n', 1);
  return new Problem('environment_fault', `${variant.environment.spec.id} failed ${doing}: ${line}`, {
    cause: error,
  });
}

/** Asks an environment for something that is no step, and counts its faults. */
export function guarded<T>(variant: Variant, doing: string, work: () => MaybePromise<T>): MaybePromise<T> {
  const refuse = (error: unknown): never => {
    const fault = environmentFault(variant, doing, error);
    if (fault !== error) variant.counters.faults++;
    throw fault;
  };
  try {
    const result = work();
    return result instanceof Promise ? result.catch(refuse) : result;
  } catch (error) {
    return refuse(error);
  }
}
