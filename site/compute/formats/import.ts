import type { EpisodeRecord } from '../../../shared/run-folder/run-files.ts';
import { episodeOf } from '../episode-record.ts';
import { ATIF } from './atif.ts';
import { isRow } from './chat.ts';
import { clip, FormatError, type ReadEpisode, type Row, stepOf, type TrajectoryFormat } from './format.ts';
import { TRL, VERIFIERS, VERL } from './rows.ts';
import { VERIFIERS_TRACES } from './verifiers-traces.ts';

/**
 * ragen's own trajectories, e.g. from another person's run folder. Without the run's `tokens.jsonl` tokens have no
 * texts.
 */
const RAGEN: TrajectoryFormat = {
  name: 'ragen',
  fields: 'turns, samples',
  recognizes: row => Array.isArray(row.turns) && Array.isArray(row.samples),
  read(row) {
    const episode = episodeOf(row);
    if (!episode) throw new FormatError('`turns` is a list');
    return { step: stepOf(row), group: `${episode.tag} ${episode.group_id} ${episode.seed}`, episode };
  },
};

/** Formats in the order in which the first row is tried; those with an unmistakable field come first. */
const FORMATS: readonly TrajectoryFormat[] = [ATIF, RAGEN, VERIFIERS_TRACES, VERL, VERIFIERS, TRL];
/** Most episodes of all files together. */
const MAX_EPISODES = 100_000;
const MAX_STEPS = 10_000;

/**
 * Receives episodes.
 * @param step training step; 0 where the file has none
 */
export type OnEpisode = (step: number, episode: EpisodeRecord) => void;

interface Group {
  readonly id: number;
  members: number;
}

/**
 * Turns rows of files into the episodes of one run: detects each file's format by its first row, and numbers groups.
 */
export class TrajectoryImport {
  readonly #onEpisode: OnEpisode;
  readonly #groups = new Map<number, Map<string, Group>>();
  readonly #formats = new Set<string>();
  #format: TrajectoryFormat | undefined;
  #episodes = 0;

  constructor(onEpisode: OnEpisode) {
    this.#onEpisode = onEpisode;
  }

  get episodes(): number {
    return this.#episodes;
  }

  /** Names of the formats found so far. */
  get formats(): readonly string[] {
    return [...this.#formats];
  }

  /** Starts the next file. */
  startFile(): void {
    this.#format = undefined;
  }

  /**
   * Adds a row.
   * @param place position of the row, for errors
   * @throws FormatError for a row that does not fit the file's format, and for too many rows
   */
  add(value: unknown, place: string): void {
    if (!isRow(value)) throw new FormatError(`${place} is not an object: ${clip(value)}`);
    this.#format ??= formatOf(value, place);
    const format = this.#format;
    if (!format.recognizes(value))
      throw new FormatError(
        `${place} is not of the format of the lines before it, ${format.name} (${format.fields}): it has ${keysOf(value)}`,
      );
    if (this.#episodes === MAX_EPISODES)
      throw new FormatError(
        `${place} is episode ${MAX_EPISODES + 1}: at most ${MAX_EPISODES} are shown at once`,
      );
    try {
      this.#take(format, value);
    } catch (error) {
      if (error instanceof FormatError) throw new FormatError(`${place}, ${format.name}: ${error.message}`);
      // Protects against values nested thousands of levels deep.
      if (error instanceof RangeError) throw new FormatError(`${place}, ${format.name}: nested too deeply`);
      throw error;
    }
  }

  #take(format: TrajectoryFormat, row: Row): void {
    for (const read of [format.read(row)].flat() as readonly ReadEpisode[]) this.#number(format, read);
  }

  #number(format: TrajectoryFormat, { step, group, episode }: ReadEpisode): void {
    const { id, members } = this.#memberOf(step, group);
    this.#episodes++;
    this.#formats.add(format.name);
    // ragen's own episodes keep their numbers: the rest of a group may be in other files.
    const numbered =
      format === RAGEN ? (episode as EpisodeRecord) : { ...episode, group_id: id, member: members };
    this.#onEpisode(step, numbered);
  }

  #memberOf(step: number, text: string): Group {
    let groups = this.#groups.get(step);
    if (!groups) {
      if (this.#groups.size === MAX_STEPS)
        throw new FormatError(
          `step ${step} is step ${MAX_STEPS + 1} of these files: at most ${MAX_STEPS} are shown at once`,
        );
      groups = new Map();
      this.#groups.set(step, groups);
    }
    const key = groupKey(text);
    const group = groups.get(key) ?? { id: groups.size, members: 0 };
    groups.set(key, group);
    return { id: group.id, members: group.members++ };
  }
}

function formatOf(row: Row, place: string): TrajectoryFormat {
  const found = FORMATS.find(format => format.recognizes(row));
  if (found) return found;
  const known = FORMATS.map(({ name, fields }) => `${name} (${fields})`).join(', ');
  throw new FormatError(
    `${place} is not a trajectory: it has ${keysOf(row)}; the known formats are ${known}`,
  );
}

function keysOf(row: Row): string {
  const keys = Object.keys(row);
  return keys.length === 0 ? 'no fields' : `the fields ${clip(keys)}`;
}

/** A short key that differs between prompts, so that long prompts are not kept. */
function groupKey(text: string): string {
  let [low, high] = [0xdeadbeef, 0x41c6ce57];
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    low = Math.imul(low ^ code, 2_654_435_761);
    high = Math.imul(high ^ code, 1_597_334_677);
  }
  return `${text.length} ${low} ${high}`;
}
