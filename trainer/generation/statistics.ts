/** Counts since the engine started. */
export interface EngineStatistics {
  ticks: number;
  /** Tokens that went through the model: prompts, sampled tokens, and recomputed ones. */
  rows: number;
  sampled: number;
  evictions: number;
  /** Tokens that needed no pass because another sequence of the same beginning had had it. */
  shared: number;
}
