import type { Random } from '../../../../shared/random.ts';
import { InvalidConfig, InvalidOptions } from '../environment.ts';
import { isInSplit, type Split } from '../splits.ts';
import { type RecordReader, readRecords } from './records.ts';

/** Records of each split, kept for as long as the records are. */
const parts = new WeakMap<readonly unknown[], Map<Split, readonly unknown[]>>();

export interface ChosenRecord<T> {
  /** Path of the data file; `/data` in the configuration. */
  readonly path: string;
  readonly read: RecordReader<T>;
  readonly split: Split;
  /** The text that decides which split a record belongs to. */
  key(record: T): string;
  /** A certain record of the split, from 0, instead of a random one; `/index` in the options. */
  readonly index?: number;
}

/**
 * A record of a data file.
 * @throws InvalidConfig for a file that cannot be read or has no record of the split
 * @throws InvalidOptions for an index past the end
 */
export async function chooseRecord<T>(
  { path, read, split, key, index }: ChosenRecord<T>,
  rng: Random,
): Promise<T> {
  return pick(partOf(await readRecords('/data', path, read), split, key), index, rng);
}

/** The records of one split. */
export function partOf<T>(records: readonly T[], split: Split, key: (record: T) => string): readonly T[] {
  let known = parts.get(records);
  if (!known) {
    known = new Map();
    parts.set(records, known);
  }
  let part = known.get(split) as readonly T[] | undefined;
  if (!part) {
    part = records.filter(record => isInSplit(key(record), split));
    known.set(split, part);
  }
  if (part.length === 0) throw new InvalidConfig('/split', `none of the records belongs to ${split}`);
  return part;
}

/** The record at an index, or a random one. */
export function pick<T>(records: readonly T[], index: number | undefined, rng: Random): T {
  if (index === undefined) return rng.choice(records);
  if (index >= records.length) {
    throw new InvalidOptions(
      '/index',
      `there are ${records.length} records, so the last index is ${records.length - 1}`,
    );
  }
  return records[index];
}
