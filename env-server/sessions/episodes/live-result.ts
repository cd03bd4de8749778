import { sizeOf } from '../limits/size.ts';
import type { StepResult } from './episode.ts';

/** Estimated memory of a result without its observation and info, in bytes. */
const RESULT_BYTES = 320;
/** Environments share their frozen `info` objects between steps. */
const infoSizes = new WeakMap<object, number>();

function infoSize(info: StepResult['info']): number {
  let bytes = infoSizes.get(info);
  if (bytes === undefined) {
    bytes = sizeOf(info);
    if (Object.isFrozen(info)) infoSizes.set(info, bytes);
  }
  return bytes;
}

/** Ids are URL-safe and need no escaping. Joined, not added, as that makes one string of the parts and not a tree. */
export const headOfText = (sessionId: string, episodeId: string): string =>
  ['{"session_id":"', sessionId, '","episode_id":"', episodeId, '","step":'].join('');

/** The result of a step that was just taken. It knows how its JSON text begins: all results of an episode share that. */
export class LiveResult implements StepResult {
  readonly session_id: string;
  readonly episode_id: string;
  readonly step: number;
  readonly observation: StepResult['observation'];
  readonly reward: number;
  readonly terminated: boolean;
  readonly truncated: boolean;
  readonly info: StepResult['info'];
  /** Present where the session names states. */
  declare state_key?: string;
  readonly #head: string;

  /** @param head {@link headOfText} of its episode */
  constructor(
    head: string,
    sessionId: string,
    episodeId: string,
    step: number,
    observation: StepResult['observation'],
    reward: number,
    terminated: boolean,
    truncated: boolean,
    info: StepResult['info'],
  ) {
    this.session_id = sessionId;
    this.episode_id = episodeId;
    this.step = step;
    this.observation = observation;
    this.reward = reward;
    this.terminated = terminated;
    this.truncated = truncated;
    this.info = info;
    this.#head = head;
  }

  /** Estimated memory, in bytes: the same as of any data, sooner. */
  get bytes(): number {
    return RESULT_BYTES + sizeOf(this.observation) + infoSize(this.info);
  }

  /** JSON text up to the number of the step. */
  static head(result: StepResult): string {
    return #head in result ? result.#head : headOfText(result.session_id, result.episode_id);
  }
}
