/** Success after a stage, as validation samples; shares from 0 to 1. */
export interface Stage {
  readonly name: string;
  /** Number of iterations of reinforcement learning. */
  readonly iterations: number;
  /** Trained on, in this stage. */
  readonly episodes: number;
  readonly success: number;
  readonly low: number;
  readonly high: number;
}

/** Greedy episodes on the same levels by the policy in process and by the adapter that is served. */
export interface Served {
  readonly levels: number;
  readonly local: number;
  readonly endpoint: number;
  /** Levels with the same text from both, letter for letter. */
  readonly same: number;
}

/** PEFT's result for the adapter's folder, or the reason it was not run. */
export type Loaded = { readonly tokens: number; readonly difference: number } | { readonly skipped: string };

/** A seed that is finished. */
export interface StoryRow {
  readonly task: string;
  readonly seed: number;
  readonly recipe: string;
  readonly stages: readonly Stage[];
  readonly served: Served;
  readonly peft: Loaded;
}
