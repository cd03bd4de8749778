/** Counts since the engine started. */
export interface EngineStatistics {
  ticks: number;
  /** Tokens that went through the model: prefill, decode, and recomputed ones. */
  rows: number;
  sampled: number;
  evictions: number;
  /** Prompt tokens found in the cache (prefix caching). */
  shared: number;
}
