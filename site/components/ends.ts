/** Words for why an episode ended: `ended_by` of the server, and the caps of the trainer. */
const PHRASES: { readonly [reason: string]: string } = {
  max_actions: 'Used up its actions',
  max_turns: 'Ran out of turns',
};

/** An end as people read it. */
export interface EpisodeEnd {
  readonly success: boolean;
  /** A sentence without its full stop, e.g. `Fell into a hole`. */
  readonly text: string;
}

/** Facts of an episode that say how it ended. */
export interface EndedEpisode {
  readonly success: boolean;
  readonly terminated: boolean;
  /** Reason that the environment or the trainer returned; absent in records of older versions. */
  readonly ended_by?: string | null;
}

/** The end of an episode in words. A reason that is not listed is shown as it is. */
export function episodeEnd({ success, terminated, ended_by: reason }: EndedEpisode): EpisodeEnd {
  const known = reason == null ? undefined : (PHRASES[reason] ?? sentence(reason));
  const plain = success ? 'Solved' : terminated ? 'Ended without success' : 'Ran out of turns';
  return { success, text: known ?? plain };
}

/** `fell_into_hole` → `Fell into hole`. */
function sentence(reason: string): string {
  const words = reason.replaceAll('_', ' ');
  return words.slice(0, 1).toUpperCase() + words.slice(1);
}
