import type { EpisodeRecord, TurnRecord } from '../../../shared/run-folder/run-files.ts';

/** A row of a file: a JSON object or a table row. */
export interface Row {
  readonly [key: string]: unknown;
}

/** An episode as a reader returns it; the import numbers groups and members. */
export interface ReadEpisode {
  /** Training step; 0 where the file has none. */
  readonly step: number;
  /** Text that the episodes of a group share: the prompt, or the id of the example. */
  readonly group: string;
  readonly episode: Omit<EpisodeRecord, 'group_id' | 'member'>;
}

/** Format of a program's trajectories; each has a reader in this folder. */
export interface TrajectoryFormat {
  readonly name: string;
  /** Field names that identify a row of the format, in words. */
  readonly fields: string;
  recognizes(row: Row): boolean;
  /**
   * The episode of a row, or one for each of its agents.
   * @throws FormatError for a field of the wrong type
   */
  read(row: Row): ReadEpisode | readonly ReadEpisode[];
}

/** A file that cannot be shown; the message gives the reason and the place. */
export class FormatError extends Error {}

/** Field names that programs use for the correctness of an answer. */
const SUCCESS_FIELDS = ['success', 'acc', 'correct', 'is_correct', 'solved', 'resolved'];
const MAX_STEP = 999_999_999;

/** Success in a row; null where the row has none. */
export function successOf(row: Row): boolean | null {
  for (const name of SUCCESS_FIELDS) {
    const value = row[name];
    if (typeof value === 'boolean') return value;
    if (value === 0 || value === 1) return value === 1;
  }
  return null;
}

/**
 * The step of a row.
 * @throws FormatError for anything but a count
 */
export function stepOf(row: Row): number {
  const { step } = row;
  if (step === undefined || step === null) return 0;
  if (typeof step === 'number' && Number.isInteger(step) && step >= 0 && step <= MAX_STEP) return step;
  throw new FormatError(`\`step\` is a whole number from 0 to ${MAX_STEP}, got ${clip(step)}`);
}

/**
 * A number in a row; null where it is missing.
 * @throws FormatError for anything else
 */
export function numberOf(row: Row, name: string): number | null {
  const value = row[name];
  if (value === undefined || value === null) return null;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new FormatError(`\`${name}\` is a number, got ${clip(value)}`);
}

/** Numbers in a row besides the named fields, e.g. one for each reward function. */
export function numbersOf(row: Row, except: readonly string[]): Readonly<Record<string, number>> | undefined {
  const entries = Object.entries(row).filter(
    (entry): entry is [string, number] =>
      typeof entry[1] === 'number' && Number.isFinite(entry[1]) && !except.includes(entry[0]),
  );
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

/** Fields that every reader fills in. */
interface EpisodeParts {
  readonly format: string;
  /** Name of the data or environment; the format's name where the file has none. */
  readonly tag?: string;
  readonly turns: readonly TurnRecord[];
  readonly success: boolean | null;
  readonly return: number | null;
  /** Reward components of the episode. */
  readonly rewards?: Readonly<Record<string, number>>;
  readonly advantage?: number | null;
  readonly expected?: unknown;
  readonly truncated?: boolean;
  readonly endedBy?: string;
  readonly id?: string;
}

/** An episode of another program. The last turn gets the reward, because trainers reward the whole response. */
export function episodeOf(parts: EpisodeParts): ReadEpisode['episode'] {
  const { format, tag = format, turns, truncated = false, rewards, advantage, expected } = parts;
  const last = turns.length - 1;
  return {
    format,
    episode_id: parts.id ?? '',
    ...{ env_id: tag, tag, seed: null, server: '', success: parts.success, return: parts.return },
    ...{ terminated: !truncated, truncated, samples: [] },
    ...(parts.endedBy === undefined ? {} : { ended_by: parts.endedBy }),
    ...(typeof advantage === 'number' ? { advantage } : {}),
    ...(expected === undefined || expected === null ? {} : { expected: textOf(expected) }),
    turns: turns.map((turn, i) =>
      i < last
        ? turn
        : {
            ...turn,
            reward: parts.return ?? 0,
            ...(rewards ? { rewards } : {}),
            ...(truncated ? { finish_reason: 'length' } : {}),
          },
    ),
  };
}

/** A value as text: texts unchanged, others as JSON. */
export const textOf = (value: unknown): string =>
  typeof value === 'string' ? value : (JSON.stringify(value) ?? '');

/** A value as an error message shows it. */
export function clip(value: unknown): string {
  let text: string;
  try {
    text = JSON.stringify(value) ?? String(value);
  } catch {
    return 'a value nested too deeply';
  }
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
