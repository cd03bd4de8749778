/** Words for the trainer's caps; environments describe their own ends. */
const PHRASES: Meanings = {
  max_actions: 'Used up its actions',
  max_turns: 'Ran out of turns',
};

/** Meaning of each `ended_by`. */
export interface Meanings {
  readonly [name: string]: string;
}

/** An end in words. */
export interface EpisodeEnd {
  readonly success: boolean | null;
  /** A sentence without its period, e.g. `Fell into a hole`. */
  readonly text: string;
}

/** Facts about an episode's end. */
export interface EndedEpisode {
  /** Null where another program's file does not say. */
  readonly success: boolean | null;
  readonly terminated: boolean;
  /** Name from the environment or the trainer; absent in records of older versions. */
  readonly ended_by?: string | null;
}

/** The end of an episode in words. @param meanings of the environment's names */
export function episodeEnd(
  { success, terminated, ended_by: name }: EndedEpisode,
  meanings?: Meanings,
): EpisodeEnd {
  const ended = success === null ? 'Ended' : 'Ended without success';
  const plain = success ? 'Solved' : terminated ? ended : 'Ran out of turns';
  return { success, text: name == null ? plain : endText(name, meanings) };
}

/** An end by its name; one without a description is shown by its name: `fell_into_hole` → `Fell into hole`. */
export function endText(name: string, meanings: Meanings = {}): string {
  const known = [meanings, PHRASES].find(words => Object.hasOwn(words, name))?.[name];
  const words = known ?? name.replaceAll('_', ' ');
  return words.slice(0, 1).toUpperCase() + words.slice(1);
}

/** Success as views mark it. */
export interface SuccessMark {
  readonly word: string;
  readonly sign: string;
  /** Class of its color. */
  readonly tone: string;
}

/** The mark of an episode's success; a neutral one where unknown. */
export function successMark(success: boolean | null): SuccessMark {
  if (success === null) return { word: 'success unknown', sign: '·', tone: 'even' };
  return success
    ? { word: 'success', sign: '✓', tone: 'good' }
    : { word: 'no success', sign: '✕', tone: 'bad' };
}
