import { shown } from '../../shared/faults.ts';
import { isObject, type Json, type JsonObject } from '../../shared/json.ts';
import { type StepInfo, stepInfo, type Transition } from '../environments/core/environment.ts';
import { REWARD } from './definitions/definition-parts.ts';

/** Observation of a state, as custom code returned it. */
export interface AnsweredObservation {
  readonly text: string;
  readonly structured?: JsonObject;
  readonly valid?: readonly Json[];
}

/** Result of a step, as custom code returned it. */
export interface AnsweredStep {
  readonly reward: number;
  readonly terminated: boolean;
  readonly truncated: boolean;
  readonly info: StepInfo;
}

const FLAGS = ['success', 'action_is_valid', 'action_is_effective'];

/** A malformed answer; the message says what would be right. */
export class InvalidAnswer extends Error {}

/**
 * Reads an observation: text, `{text, structured}`, or any other object, which is shown as JSON.
 * @param observation as received
 * @param validActions legal actions, where the answer lists them
 * @throws BadAnswer
 */
export function readSeen(observation: unknown, validActions?: unknown): AnsweredObservation {
  const valid = readValid(validActions);
  if (typeof observation === 'string') return { text: observation, ...valid };
  if (!isObject(observation)) {
    throw new InvalidAnswer(`the observation must be text or an object, got ${kind(observation)}`);
  }
  const { text, structured, ...others } = observation;
  if (typeof text !== 'string' || Object.keys(others).length > 0) {
    return { text: JSON.stringify(observation), structured: observation, ...valid };
  }
  if (structured === undefined) return { text, ...valid };
  if (!isObject(structured)) {
    throw new InvalidAnswer(`observation.structured must be an object, got ${kind(structured)}`);
  }
  return { text, structured, ...valid };
}

function readValid(given: unknown): { valid?: readonly Json[] } {
  if (given === undefined || given === null) return {};
  if (!Array.isArray(given)) throw new InvalidAnswer(`the valid actions must be a list, got ${kind(given)}`);
  return { valid: given as Json[] };
}

/**
 * Reads the result of a step; missing parts get neutral values.
 * @param effective `action_is_effective` where the answer omits it
 * @throws BadAnswer
 */
export function readOutcome(answer: { readonly [key: string]: unknown }, effective: boolean): AnsweredStep {
  const { reward = 0, terminated = false, truncated = false, info = {} } = answer;
  checkReward(reward);
  if (typeof terminated !== 'boolean')
    throw new InvalidAnswer(`terminated must be a boolean, got ${kind(terminated)}`);
  if (typeof truncated !== 'boolean')
    throw new InvalidAnswer(`truncated must be a boolean, got ${kind(truncated)}`);
  if (!isObject(info)) throw new InvalidAnswer(`info must be an object, got ${kind(info)}`);
  for (const flag of FLAGS) {
    if (info[flag] !== undefined && typeof info[flag] !== 'boolean') {
      throw new InvalidAnswer(`info.${flag} must be a boolean, got ${kind(info[flag])}`);
    }
  }
  for (const [name, value] of Object.entries(isObject(info.rewards) ? info.rewards : {})) {
    if (!Number.isFinite(value))
      throw new InvalidAnswer(`info.rewards.${name} must be a finite number, got ${kind(value)}`);
  }
  const completed = { success: false, action_is_valid: true, action_is_effective: effective, ...info };
  return { reward, terminated, truncated, info: completed as StepInfo };
}

/**
 * Sums of rewards must stay finite.
 * @throws BadAnswer
 */
export function checkReward(reward: unknown): asserts reward is number {
  const { minimum, maximum } = REWARD;
  if (typeof reward !== 'number' || !Number.isFinite(reward)) {
    const hint = reward === null ? ', which JSON has in place of NaN and infinity' : '';
    throw new InvalidAnswer(`reward must be a finite number, got ${kind(reward)}${hint}`);
  }
  if (reward < minimum || reward > maximum) {
    const scale = `1e-${Math.floor(Math.log10(Math.abs(reward)))}`;
    throw new InvalidAnswer(
      `reward must be from ${minimum} to ${maximum}, got ${reward}: bound it in the environment, or multiply its rewards there, by ${scale} for one like this; reward_scale comes after this check`,
    );
  }
}

/**
 * Transition for an action outside the action space, or that a service has refused.
 * @param message what the service says about it
 */
export function refused<S extends { readonly text: string; readonly success?: boolean }>(
  state: S,
  message?: string,
): Transition<S> {
  const { success = false } = state;
  const info = stepInfo(success, false, false, null, { ...(message !== undefined && { message }) });
  return { state, reward: 0, terminated: false, info };
}

function kind(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  return typeof value === 'number' ? shown(value) : `a value of type ${typeof value}`;
}
