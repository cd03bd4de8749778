import type { StepResult } from '../sessions/episode.ts';
import type { Operation } from './operation.ts';

/** Makes the JSON text of an operation's result. */
export type Serialise = (result: unknown) => string;

/** The serialiser of an operation: written out for the one that runs all the time. */
export function serialiserOf(operation: Operation): Serialise {
  return operation.name === 'step' ? (serialiseStep as Serialise) : JSON.stringify;
}

/** Environments share their frozen `info` objects between steps, so their text is made once. */
const infoTexts = new WeakMap<object, string>();

function infoText(info: object): string {
  if (!Object.isFrozen(info)) return JSON.stringify(info);
  let text = infoTexts.get(info);
  if (text === undefined) {
    text = JSON.stringify(info);
    infoTexts.set(info, text);
  }
  return text;
}

/** Ids are URL-safe and need no escaping. */
function serialiseStep(result: StepResult): string {
  return `{"session_id":"${result.session_id}","episode_id":"${result.episode_id}","step":${result.step},"observation":${JSON.stringify(result.observation)},"reward":${result.reward},"terminated":${result.terminated},"truncated":${result.truncated},"info":${infoText(result.info)}}`;
}
