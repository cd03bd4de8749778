import type { EpisodeSample } from '../rollout/episode.ts';
import { TokenBuffer } from '../rollout/token-buffer.ts';

/** One answer of the policy to a program, as it was sampled. */
export interface ModelCall {
  readonly promptIds: readonly number[];
  readonly tokenIds: Int32Array;
  /** Same length as `tokenIds`, as the two below. */
  readonly logProbs: Float32Array;
  readonly versions: Int32Array;
  readonly values?: Float32Array;
  readonly finishReason: 'stop' | 'length' | 'context';
  /** The response as text. */
  readonly text: string;
}

/** Position of a call's sampled tokens. */
interface CallPlace {
  readonly sample: number;
  readonly tokens: readonly [start: number, end: number];
}

/** The calls of an episode as token sequences to train on. */
export interface MergedCalls {
  readonly samples: readonly EpisodeSample[];
  /** For each call, in their order. */
  readonly places: readonly CallPlace[];
  /** Calls that went on with the sequence of an earlier one. */
  readonly merges: number;
  /**
   * Tokens of earlier responses that a later prompt holds in other ids, so that a new sequence had to begin: from where the
   * ids part to the end of the earlier sequence.
   */
  readonly retokenized: number;
}

/** A sequence that calls may continue with. */
interface Sequence {
  readonly buffer: TokenBuffer;
  ids: number[];
  /** Start of the last response. */
  responseStart: number;
}

/**
 * Merges calls into sequences: a call continues with an earlier sequence exactly where all ids of that sequence, prompts and
 * responses, begin the call's prompt. Otherwise a new sequence begins. Several fit: the longest.
 */
export function mergeCalls(calls: readonly ModelCall[]): MergedCalls {
  const sequences: Sequence[] = [];
  const places: CallPlace[] = [];
  let merges = 0;
  let retokenized = 0;
  for (const call of calls) {
    const { promptIds, tokenIds } = call;
    let index = -1;
    let parted = 0;
    sequences.forEach(({ ids, responseStart }, i) => {
      const common = commonPrefix(ids, promptIds);
      if (common === ids.length && (index < 0 || ids.length > sequences[index].ids.length)) index = i;
      else if (common > responseStart) parted = Math.max(parted, ids.length - common);
    });
    if (index < 0) {
      retokenized += parted;
      index = sequences.push({ buffer: new TokenBuffer(), ids: [], responseStart: 0 }) - 1;
    } else merges++;
    const sequence = sequences[index];
    sequence.buffer.addContext(promptIds.slice(sequence.ids.length));
    const tokens = sequence.buffer.addSampled(call);
    sequence.responseStart = tokens[0];
    sequence.ids = [...promptIds, ...tokenIds];
    places.push({ sample: index, tokens });
  }
  return { samples: sequences.map(({ buffer }) => buffer.sample()), places, merges, retokenized };
}

function commonPrefix(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const most = Math.min(a.length, b.length);
  let i = 0;
  while (i < most && a[i] === b[i]) i++;
  return i;
}
