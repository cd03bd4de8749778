/** Returns within this spread count as equal: the same rewards, summed in floating point, differ by about 1e-17. */
const ALIKE_SPREAD = 1e-10;
/** Buckets of reward variance, as in the gradient decomposition. */
const MAX_BUCKETS = 6;

/** True if returns with this spread (range or standard deviation) count as equal. */
export function isAlike(spread: number): boolean {
  return spread <= ALIKE_SPREAD;
}

/** Properties of an episode that the filters read. */
export interface FilteredEpisode {
  readonly tag: string;
  readonly group_id: number;
  readonly success: boolean | null;
  readonly terminated: boolean;
  readonly ended_by?: string;
  readonly return: number | null;
  readonly penalty: number;
  readonly invalid: number;
  readonly cut: boolean;
  readonly filter?: { readonly std: number; readonly kept: boolean };
}

/** Filters as addresses and queries write them; an absent or empty one lets every episode pass. */
export const EPISODE_CHOICES = ['env', 'success', 'end', 'bucket', 'problem', 'kept', 'min', 'max'] as const;
export type EpisodeChoices = { readonly [choice in (typeof EPISODE_CHOICES)[number]]?: string };

/** Bucket of reward variance of each group: 1 to 6 by the spread of its returns. */
export function bucketsOf(episodes: readonly FilteredEpisode[]): ReadonlyMap<number, number> {
  const spread = new Map(
    episodes.flatMap(({ group_id, filter }) => (filter ? [[group_id, filter.std] as const] : [])),
  );
  const ordered = [...spread].sort((a, b) => a[1] - b[1] || a[0] - b[0]);
  const buckets = Math.min(MAX_BUCKETS, ordered.length);
  const size = Math.floor(ordered.length / Math.max(1, buckets));
  return new Map(ordered.map(([group], i) => [group, Math.min(buckets, Math.floor(i / size) + 1)]));
}

/** The episodes of a file that pass the filters. */
export function filtered<E extends FilteredEpisode>(
  episodes: readonly E[],
  {
    env = '',
    success = '',
    end = '',
    bucket = '',
    problem = '',
    kept = '',
    min = '',
    max = '',
  }: EpisodeChoices,
): E[] {
  const buckets = bucketsOf(episodes);
  return episodes.filter(
    episode =>
      (env === '' || episode.tag === env) &&
      (success === '' || episode.success === (success === 'yes')) &&
      (end === '' || episode.ended_by === end) &&
      (kept === '' || episode.filter?.kept === (kept === 'yes')) &&
      (bucket === '' || buckets.get(episode.group_id) === Number(bucket)) &&
      (problem !== 'penalty' || episode.penalty < 0) &&
      (problem !== 'invalid' || episode.invalid > 0) &&
      (problem !== 'cut' || episode.cut) &&
      (problem !== 'unfinished' || !episode.terminated) &&
      (min === '' || (episode.return !== null && episode.return >= Number(min))) &&
      (max === '' || (episode.return !== null && episode.return <= Number(max))),
  );
}
