import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import type { Random, RandomState } from '../../../shared/random.ts';
import type { AnyEnvironment, Environment } from '../../environments/core/environment.ts';
import { Problem } from '../../problems.ts';
import { type AnsweredObservation, InvalidAnswer, readOutcome, readSeen, refused } from '../answer.ts';
import { compileBehavior, listingValidActions } from '../definitions/behavior.ts';
import { type ScriptDefinition, sourceOf } from '../definitions/definition.ts';
import type { ScriptPool } from './pool.ts';

/** Length of {@link RandomState}. */
const WORDS = 4;

interface State extends AnsweredObservation {
  /** The script's own state as JSON text, which only the script reads. */
  readonly script: string;
  readonly success: boolean;
}

/** Facts about a script, known once it is loaded. */
export interface ScriptFacts extends JsonObject {
  readonly valid_actions: boolean;
}

/**
 * Custom JavaScript in a sandbox. Every call carries the whole state and the generator's, so that seeds, snapshots and
 * clones need no support from the script.
 * @throws Problem `invalid_request`
 */
export function scriptEnvironment(
  envId: string,
  definition: ScriptDefinition,
  facts: ScriptFacts,
  owner: string,
  pool: ScriptPool,
): AnyEnvironment {
  const { spec, describe, accept, references } = compileBehavior(envId, definition);
  const script = pool.script({ name: envId, source: sourceOf(definition), owner });

  async function ask<T>(
    request: string,
    rng: Random,
    read: (answer: Answer, state: string) => T,
  ): Promise<T> {
    const text = await pool.call(script, request);
    const end = text.indexOf('\n');
    const answer = JSON.parse(text.slice(end + 1)) as Answer;
    const result = reading(() => {
      checkRandom(answer.rng);
      return read(answer, text.slice(0, end));
    });
    rng.moveTo(answer.rng);
    return result;
  }

  function reading<T>(read: () => T): T {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof InvalidAnswer)) throw error;
      throw new Problem('environment_fault', `${envId}: ${error.message}`);
    }
  }

  const environment: Environment<JsonObject, State> = {
    spec,
    describe,
    reset: (config, rng, options) =>
      ask(JSON.stringify({ op: 'reset', config, options, rng: rng.state }), rng, (answer, state) => ({
        ...readSeen(answer.seen, answer.valid),
        script: state,
        success: false,
      })),
    step(state, action, rng) {
      const accepted = accept(action);
      if (accepted === undefined) return refused(state);
      const request = `{"op":"step","state":${state.script},"action":${JSON.stringify(accepted)},"rng":[${rng.state}]}`;
      return ask(request, rng, (answer, script) => {
        const outcome = readOutcome(answer, script !== state.script);
        const { success } = outcome.info;
        return { ...outcome, state: { ...readSeen(answer.seen, answer.valid), script, success } };
      });
    },
    observe: (state, format) => (format === 'structured' ? structured(state) : state.text),
    ...(facts.valid_actions ? listingValidActions<State>(references) : references && { references }),
  };
  return environment as unknown as AnyEnvironment;
}

interface Answer {
  readonly [key: string]: unknown;
  readonly seen: unknown;
  readonly rng: RandomState;
}

/**
 * A script can redefine the `state` of its generator.
 * @throws InvalidAnswer
 */
function checkRandom(state: RandomState): void {
  if (Array.isArray(state) && state.length === WORDS && state.every(word => word >>> 0 === word)) return;
  throw new InvalidAnswer(
    `rng.state must be ${WORDS} unsigned 32-bit integers: draw from rng, and leave it as it is`,
  );
}

/** Structured observation from `observe`, or the script's own state. */
function structured(state: State): Json {
  if (state.structured) return state.structured;
  const own = JSON.parse(state.script) as Json;
  return isObject(own) ? own : { state: own };
}
