import type { RowGroup } from 'hyparquet';
import { FormatError } from '../../site/compute/formats/format.ts';
import type { OnRow } from '../../site/compute/formats/rows.ts';

const MIB = 1024 * 1024;
/** Uncompressed bytes of a row group, which is in memory as a whole. */
const MAX_GROUP_BYTES = 512 * MIB;

/**
 * The rows of a Parquet file, a row group at a time.
 * @returns false: a file without its end is no Parquet
 * @throws FormatError
 */
export async function parquetRows(path: string, onRow: OnRow): Promise<boolean> {
  const { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } = await import('hyparquet');
  const { compressors } = await import('hyparquet-compressors');
  const readable = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work;
    } catch (error) {
      throw new FormatError(`not readable Parquet: ${(error as Error).message}`);
    }
  };
  const file = await asyncBufferFromFile(path);
  const metadata = await readable(parquetMetadataAsync(file));
  let start = 0;
  for (const [i, group] of metadata.row_groups.entries()) {
    if (bytesOf(group) > MAX_GROUP_BYTES)
      throw new FormatError(`row group ${i + 1} is larger than ${MAX_GROUP_BYTES / MIB} MiB`);
    const end = start + Number(group.num_rows);
    const rows = await readable(
      parquetReadObjects({ file, metadata, compressors, rowStart: start, rowEnd: end }),
    );
    for (const [k, row] of rows.entries()) onRow(plain(row), `row ${start + k + 1}`);
    start = end;
  }
  return false;
}

const bytesOf = ({ total_byte_size, columns }: RowGroup): number =>
  Math.max(
    Number(total_byte_size),
    columns.reduce((sum, { meta_data }) => sum + Number(meta_data?.total_uncompressed_size ?? 0), 0),
  );

/** A value without Parquet's 64-bit integers, typed arrays and dates; columns without a value are left out. */
function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value) || ArrayBuffer.isView(value))
    return Array.from(value as ArrayLike<unknown>, plain);
  if (value instanceof Date) return value.toISOString();
  if (typeof value !== 'object' || value === null) return value;
  const known = Object.entries(value).filter(([, part]) => part !== null && part !== undefined);
  return Object.fromEntries(known.map(([name, part]) => [name, plain(part)]));
}
