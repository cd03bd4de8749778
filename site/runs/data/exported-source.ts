import { filtered } from '../../../shared/run-folder/episode-filter.ts';
import { findIn, type SearchQuery, searchFiles } from '../../compute/episode-search.ts';
import { groupRuns, parseRunQuery, resolvedKey, runMatcher, runOrder } from '../../compute/run-query.ts';
import type { RunsReply, SearchReply } from '../../server/reader/run-reader.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import type { EpisodeReply, SearchHit } from '../../server/reader/trajectories.ts';
import { type EpisodePack, type ExportedRun, exportedRunPath, packOf } from './exported-run.ts';
import type { Query } from './query.ts';

/** Longest time of a search. */
const SEARCH_MS = 5000;
/** Number of run files and packs that stay in memory. */
const MAX_KEPT = 8;

type Read = <T>(url: string) => Promise<T>;

/** Computes a server's answers from the files of an exported site. */
export class ExportedData {
  readonly #read: Read;
  readonly #readPacked: Read;
  readonly #kept = new Map<string, Promise<unknown>>();
  #runs: Promise<RunsReply> | undefined;

  /** @param readPacked reads a compressed file */
  constructor(read: Read, readPacked: Read) {
    this.#read = read;
    this.#readPacked = readPacked;
  }

  async get(name: string, query: Query): Promise<unknown> {
    const { id, file, index } = query;
    switch (name) {
      case 'runs':
        return this.#rows(query);
      case 'run-summary':
      case 'leaderboard':
      case 'signed-results':
        return this.#read(exportedPath(name));
      case 'run-groups':
        return groupRuns(await this.#matching(String(query.q ?? ''), ''), String(query.by), settingOf);
      case 'run':
        return (await this.#run(id)).detail;
      case 'metrics':
        return (await this.#run(id)).metrics;
      case 'groups':
        return (await this.#run(id)).groups.filter(({ step }) => step > Number(query.after ?? -1));
      case 'episodes':
        return (await this.#run(id)).digests[String(file)];
      case 'episode':
        return this.#episode(id, String(file), Number(index));
      default:
        return this.#search(query);
    }
  }

  async #rows({ offset = 0, limit, q = '', sort = '' }: Query): Promise<RunsReply> {
    const { total } = await this.#all();
    const matching = await this.#matching(String(q), String(sort));
    const start = Number(offset);
    const end = limit === undefined ? undefined : start + Number(limit);
    return { total, matching: matching.length, offset: start, rows: matching.slice(start, end) };
  }

  #all(): Promise<RunsReply> {
    this.#runs ??= this.#read<RunsReply>(exportedPath('runs'));
    return this.#runs;
  }

  async #matching(q: string, sort: string): Promise<RunRow[]> {
    const found = (await this.#all()).rows.filter(runMatcher(parseRunQuery(q), settingOf));
    return sort === '' ? found : found.sort(runOrder(sort, settingOf));
  }

  #run(id: Query[string]): Promise<ExportedRun> {
    return this.#packed(exportedRunPath(String(id)));
  }

  /** A compressed file; the most recently read ones stay in memory. */
  #packed<T>(path: string): Promise<T> {
    let value = this.#kept.get(path) as Promise<T> | undefined;
    if (value) this.#kept.delete(path);
    else {
      value = this.#readPacked<T>(path);
      value.catch(() => this.#kept.delete(path));
    }
    this.#kept.set(path, value);
    if (this.#kept.size > MAX_KEPT) this.#kept.delete(this.#kept.keys().next().value!);
    return value;
  }

  async #episode(id: Query[string], file: string, index: number): Promise<EpisodeReply> {
    const run = await this.#run(id);
    const place = packOf(run, file, index);
    if (!place) throw new Error('There is no such episode.');
    const { episodes, texts } = await this.#packed<EpisodePack>(exportedRunPath(String(id), place.pack));
    return { file, index, count: run.digests[file].length, episode: episodes[place.at], texts };
  }

  /** Like the server's: a page of the episodes that pass the filters and contain the text. */
  async #search({ id, ...query }: Query): Promise<SearchReply> {
    const run = await this.#run(id);
    const wanted = String(query.q ?? '').toLowerCase();
    return searchFiles<SearchHit>(
      run.detail.files,
      query as SearchQuery,
      SEARCH_MS,
      async (file, first, most) => {
        const hits: SearchHit[] = [];
        for (const digest of filtered(run.digests[file], query as SearchQuery)) {
          const { index } = digest;
          if (index < first) continue;
          const { episode, texts } = await this.#episode(id, file, index);
          const hit = findIn(episode, wanted, token => texts[token]);
          if (hit) hits.push({ file, index, ...hit, digest });
          if (hits.length === most) break;
        }
        return hits;
      },
    );
  }
}

/** The file that answers a query about several runs, where the exporter writes it. */
export function exportedPath(name: string): string {
  return `data/${name}.json`;
}

function settingOf({ settings = {} }: RunRow, name: string) {
  const key = resolvedKey(new Set(Object.keys(settings)), name);
  return key === undefined ? undefined : settings[key];
}
