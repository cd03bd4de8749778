import type { RunDescription } from '../../shared/run-folder/run-files.ts';

/** Fields of a run that a search reads. */
export interface SearchedRun {
  readonly id: string;
  readonly state: string;
  readonly run: RunDescription;
}

/** Matches runs with all words in their row of the table. @param q words with spaces between them */
export function runMatcher(q: string): (run: SearchedRun) => boolean {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  return ({ id, state, run }) => {
    const tags = run.tags.flatMap(({ tag, env_id }) => [tag, env_id]);
    const parts = [id, run.name, state, run.advantage, run.model, `seed ${run.seed}`, ...run.recipe, ...tags];
    const text = parts.join('\n').toLowerCase();
    return words.every(word => text.includes(word));
  };
}
