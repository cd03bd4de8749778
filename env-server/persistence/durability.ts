export const DURABILITIES = ['fsync', 'replicated', 'journal', 'checkpoint', 'none'] as const;
/**
 * What survives an end without warning: with `fsync` all that was acknowledged, even where the machine goes down; with
 * `replicated`, for a shared store, what a replica of the store has as well; with `journal` the same unless it does; with `checkpoint` what the last checkpoint wrote; with `none` nothing since the start.
 */
export type Durability = (typeof DURABILITIES)[number];
