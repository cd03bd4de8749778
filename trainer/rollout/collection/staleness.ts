/** State that decides how many episodes may start. */
export interface StalenessState {
  /** η: versions that an episode may lie behind the weights it is trained on with; 0 is on-policy. */
  readonly maxStaleness: number;
  /** v: batches trained on. */
  readonly version: number;
  /** B: episodes of a batch. */
  readonly batchSize: number;
  /** Episodes open at once. */
  readonly concurrency: number;
  /** Episodes that were completed and not refused, those trained on included. */
  readonly accepted: number;
  /** Episodes open now. */
  readonly running: number;
}

/**
 * Episodes that may start now: min(concurrency − running, (η + v + 1)·B − (accepted + running)). An episode that starts is then
 * trained on at most η versions later, as long as older episodes are taken first.
 *
 * Source: AReaL (Fu et al., 2025), staleness-aware training; areal `StalenessManager.get_capacity`.
 */
export function startCapacity(state: StalenessState): number {
  const { maxStaleness, version, batchSize, concurrency, accepted, running } = state;
  return Math.min(concurrency - running, (maxStaleness + version + 1) * batchSize - (accepted + running));
}
