import type { StepResult } from '../../sessions/episodes/episode.ts';
import { LiveResult } from '../../sessions/episodes/live-result.ts';
import type { Operation } from '../operation.ts';
import { WrittenResult } from './written-result.ts';

/** Makes the JSON text of an operation's result. */
export type Serialize = (result: unknown) => string;

/** The serializer of an operation: written out for the one that runs all the time. */
export function serializerOf(operation: Operation): Serialize {
  const serialize = operation.name === 'step' ? (serializeStep as Serialize) : JSON.stringify;
  return result => (result instanceof WrittenResult ? result.text : serialize(result));
}

function serializeStep(result: StepResult): string {
  return `${LiveResult.head(result)}${result.step},"observation":${JSON.stringify(result.observation)}${outcomeText(result)}`;
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
