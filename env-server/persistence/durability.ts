export const DURABILITIES = ['fsync', 'replicated', 'journal', 'checkpoint', 'none'] as const;
/**
 * Data that survives an end without warning. `fsync`: everything acknowledged, even if the machine goes down.
 * `replicated`: in a shared store, everything that a replica of the store has as well. `journal`: everything
 * acknowledged, unless the machine goes down. `checkpoint`: the last checkpoint. `none`: nothing since the start.
 */
export type Durability = (typeof DURABILITIES)[number];
