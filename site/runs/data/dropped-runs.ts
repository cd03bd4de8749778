import type { EpisodeRecord } from '../../../shared/run-folder/run-files.ts';
import { digestOf } from '../../compute/episode-digest.ts';
import { FormatError } from '../../compute/formats/format.ts';
import { RowSplitter, TrajectoryImport } from '../../compute/formats/import.ts';
import type { RunDetail } from '../../server/reader/run-reader.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import type { TrajectoryFile } from '../../server/reader/trajectories.ts';
import { answerLocally, type LocalRun, type Query } from './exported-source.ts';

/** Prefix of the ids of runs that exist in the page only. */
const DROPPED = 'dropped:';
const MIB = 1024 * 1024;
/** Most files of one drop, which are in memory as a whole. */
const MAX_BYTES = 512 * MIB;
const PARQUET_MARK = 'PAR1';

/** Trajectory files dropped onto the page: read in the browser, gone when the page is left. */
export class DroppedRuns {
  readonly #runs = new Map<string, LocalRun>();

  has(id: unknown): boolean {
    return typeof id === 'string' && this.#runs.has(id);
  }

  /**
   * Reads files as the episodes of one run.
   * @returns its id
   * @throws Error that names file and line for anything but a trajectory
   */
  async add(files: readonly File[]): Promise<string> {
    if (files.length === 0) throw new Error('No file was dropped.');
    const bytes = files.reduce((sum, { size }) => sum + size, 0);
    if (bytes > MAX_BYTES)
      throw new Error(
        `The files have ${Math.round(bytes / MIB)} MiB; the page reads at most ${MAX_BYTES / MIB} MiB. Larger ones open with: ragen view FILE`,
      );
    const steps = new Map<string, EpisodeRecord[]>();
    const rows = new TrajectoryImport((step, episode) => {
      const name = `train-${String(step).padStart(6, '0')}`;
      const episodes = steps.get(name) ?? [];
      episodes.push(episode);
      steps.set(name, episodes);
    });
    for (const file of files) await readFile(file, rows);
    if (rows.episodes === 0) throw new Error(`${files[0].name}: no episodes in it`);
    const [{ name }] = files;
    const id = `${DROPPED}${files.length === 1 ? name : `${name} and ${files.length - 1} more`}`;
    this.#runs.set(id, {
      detail: detailOf(id, rows.formats.join(', '), [...steps.keys()]),
      metrics: { names: [], rows: 0, offset: 0, series: {} },
      groups: [],
      digests: Object.fromEntries([...steps].map(([step, episodes]) => [step, episodes.map(digestOf)])),
      async episode(file, index) {
        const episodes = steps.get(file) ?? [];
        const episode = episodes[index];
        if (!episode) throw new Error('There is no such episode.');
        return { file, index, count: episodes.length, episode, texts: {} };
      },
    });
    return id;
  }

  /** Answers for a run that {@link has} knows; undefined for data it does not hold. */
  get(route: string, query: Query): Promise<unknown> {
    return answerLocally(this.#runs.get(String(query.id))!, route, query);
  }
}

/** @throws Error that names file and line */
async function readFile(file: File, rows: TrajectoryImport): Promise<void> {
  if ((await file.slice(0, PARQUET_MARK.length).text()) === PARQUET_MARK)
    throw new Error(
      `${file.name} is Parquet, which the page cannot read. It opens with: ragen view ${file.name}`,
    );
  rows.startFile();
  const splitter = new RowSplitter((value, place) => rows.add(value, place));
  const reader = file.stream().getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      splitter.push(value);
    }
    splitter.end();
  } catch (error) {
    if (error instanceof FormatError) throw new Error(`${file.name}: ${error.message}`);
    throw new Error(`${file.name} cannot be read: ${(error as Error).message}`);
  } finally {
    reader.releaseLock();
  }
}

function detailOf(id: string, format: string, names: readonly string[]): RunDetail {
  const files = [...names]
    .sort()
    .map((name): TrajectoryFile => ({ name, kind: 'train', step: Number(name.slice('train-'.length)) }));
  const step = files.at(-1)?.step ?? 0;
  const row: RunRow = {
    ...{
      id,
      state: 'finished',
      stage: '',
      step,
      steps: step,
      eta_s: null,
      started: null,
      updated: 0,
      seconds: 0,
    },
    ...{ validations: [], last_error: null },
    run: { name: id, format, recipe: [], advantage: '', seed: 0, model: '', parameters: null, tags: [] },
  };
  return { row, folder: '', notes: [], log: [], config: null, metrics: [], offset: 0, files };
}
