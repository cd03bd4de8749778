/** What a run's seed is mixed with, so that no two kinds of draws are alike. */
export const PURPOSE = {
  rollout: 1,
  order: 2,
  warmStart: 3,
  fill: 4,
  diagnostics: 5,
  heldBack: 6,
  demonstrations: 10,
} as const;
