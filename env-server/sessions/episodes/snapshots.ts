import { Problem } from '../../problems.ts';
import { type ActionChunk, chunksOf, type LogPosition } from './action-log.ts';
import type { EpisodeState } from './episode.ts';

const MAX_SNAPSHOTS = 1024;
/** Bytes of a snapshot without its episode. */
const SNAPSHOT_BYTES = 128;

/** Bytes of a snapshot of an episode, without the shared actions. */
export const snapshotSize = (episode: EpisodeState): number => SNAPSHOT_BYTES + episode.bytes;

/** The snapshots of a session, and the actions that they keep alive. */
export class Snapshots {
  readonly #episodes = new Map<string, EpisodeState>();
  readonly #needed = new Set<ActionChunk>();

  /** @throws Problem `too_many_snapshots` when the session has reached its limit */
  requirePlace(sessionId: string): void {
    if (this.#episodes.size < MAX_SNAPSHOTS) return;
    throw new Problem(
      'too_many_snapshots',
      `session ${sessionId} has ${MAX_SNAPSHOTS} snapshots, the most it may have`,
    );
  }

  get(snapshotId: string): EpisodeState | undefined {
    return this.#episodes.get(snapshotId);
  }

  add(snapshotId: string, episode: EpisodeState): void {
    this.#episodes.set(snapshotId, episode);
    for (const { chunk } of chunksOf(episode.log)) {
      // Everything before it is needed as well.
      if (this.#needed.has(chunk)) return;
      this.#needed.add(chunk);
    }
  }

  needs(chunk: ActionChunk): boolean {
    return this.#needed.has(chunk);
  }

  /** Estimated memory of the chunks that snapshots need, in bytes. */
  get actionBytes(): number {
    let bytes = 0;
    for (const chunk of this.#needed) bytes += chunk.bytes;
    return bytes;
  }

  entries(): Iterable<readonly [snapshotId: string, episode: EpisodeState]> {
    return this.#episodes;
  }
}

/**
 * Visits the chunks that a position needs and no snapshot needs.
 * @returns their estimated memory, in bytes
 */
export function unneededBytes(
  position: LogPosition | undefined,
  snapshots: Snapshots | undefined,
  visit?: (chunk: ActionChunk) => void,
): number {
  let bytes = 0;
  for (let at = position; at && !snapshots?.needs(at.chunk); at = at.chunk.before) {
    bytes += at.chunk.bytes;
    visit?.(at.chunk);
  }
  return bytes;
}
