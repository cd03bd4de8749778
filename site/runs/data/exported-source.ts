import { filtered } from '../../../shared/run-folder/episode-filter.ts';
import type { EpisodeRecord, GroupsRow } from '../../../shared/run-folder/run-files.ts';
import { type EpisodeDigest, findIn, type SearchQuery, searchFiles } from '../../compute/episode-digest.ts';
import { groupRuns, parseRunQuery, resolvedKey, runMatcher, runOrder } from '../../compute/run-query.ts';
import type { MetricsReply, RunDetail, RunsReply } from '../../server/reader/run-reader.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import type { EpisodeReply, SearchHit } from '../../server/reader/trajectories.ts';

/** Parameters of a request, by the names of the routes below `/runs/api/`. */
export type Query = { readonly [name: string]: string | number | undefined };

/** Longest time of a search. */
const SEARCH_MS = 3000;
/** Number of run files and packs that stay in memory. */
const MAX_KEPT = 8;

/** A run with its data in the page, or in files next to it. */
export interface LocalRun extends Omit<ExportedRun, 'packs'> {
  /** @throws Error where there is none */
  episode(file: string, index: number): Promise<EpisodeReply>;
}

/** The server's answer to a query about a run; undefined for data that the run does not have. */
export async function answerLocally(
  { detail, metrics, groups, digests, episode }: LocalRun,
  route: string,
  { id: _id, file, index, after, ...query }: Query,
): Promise<unknown> {
  switch (route) {
    case 'run':
      return detail;
    case 'metrics':
      return metrics;
    case 'groups':
      return groups.filter(({ step }) => step > Number(after ?? -1));
    case 'episodes':
      return digests[String(file)];
    case 'episode':
      return episode(String(file), Number(index));
    case 'search': {
      // A page of the episodes that pass the filters and contain the text.
      const choices = { ...query, ...(file ? { file } : {}) } as SearchQuery;
      const wanted = (choices.q ?? '').toLowerCase();
      return searchFiles<SearchHit>(detail.files, choices, SEARCH_MS, async (name, first, most) => {
        const hits: SearchHit[] = [];
        for (const digest of filtered(digests[name], choices)) {
          if (digest.index < first) continue;
          const found = await episode(name, digest.index);
          const hit = findIn(found.episode, wanted, token => found.texts[token]);
          if (hit) hits.push({ file: name, index: digest.index, ...hit, digest });
          if (hits.length === most) break;
        }
        return hits;
      });
    }
    default:
      return undefined;
  }
}

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
    switch (name) {
      case 'runs':
        return this.#rows(query);
      case 'run-summary':
      case 'leaderboard':
      case 'signed-results':
        return this.#read(exportedPath(name));
      case 'run-groups':
        return groupRuns(await this.#matching(String(query.q ?? ''), ''), String(query.by), settingOf);
      default:
        return answerLocally(await this.#run(String(query.id)), name, query);
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

  async #run(id: string): Promise<LocalRun> {
    const run = await this.#packed<ExportedRun>(exportedRunPath(id));
    const episode = async (file: string, index: number): Promise<EpisodeReply> => {
      const place = packOf(run, file, index);
      if (!place) throw new Error('There is no such episode.');
      const { episodes, texts } = await this.#packed<EpisodePack>(exportedRunPath(id, place.pack));
      return { file, index, count: run.digests[file].length, episode: episodes[place.at], texts };
    };
    return { ...run, episode };
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
}

/** The file that answers a query about several runs, where the exporter writes it. */
export function exportedPath(name: string): string {
  return `data/${name}.json`;
}

function settingOf({ settings = {} }: RunRow, name: string) {
  const key = resolvedKey(new Set(Object.keys(settings)), name);
  return key === undefined ? undefined : settings[key];
}

/** Consecutive episodes of a trajectory file. */
export interface EpisodeSpan {
  readonly file: string;
  /** Index of the first. */
  readonly first: number;
  readonly count: number;
}

/** A compressed file of an exported run: everything but the episodes. */
export interface ExportedRun {
  readonly detail: RunDetail;
  readonly metrics: MetricsReply;
  readonly groups: readonly GroupsRow[];
  /** Episode summaries by trajectory file. */
  readonly digests: { readonly [file: string]: readonly EpisodeDigest[] };
  /** Episodes of each pack, in the order of its lists. */
  readonly packs: readonly (readonly EpisodeSpan[])[];
}

/** A compressed file of an exported run: the episodes of a pack. */
export interface EpisodePack {
  readonly episodes: readonly EpisodeRecord[];
  /** Token id → text, for the ids of its samples. */
  readonly texts: { readonly [id: string]: string };
}

/** Path of a run's file, or of its pack with this number. */
export function exportedRunPath(id: string, pack?: number): string {
  return `data/run/${fileName(id)}/${pack === undefined ? 'run' : `episodes-${pack}`}.bin`;
}

/** A name that every file system and web server accepts unchanged. */
function fileName(text: string): string {
  return encodeURIComponent(text).replaceAll('%', '~').replaceAll('.', '~2E').replaceAll('*', '~2A');
}

/** The pack of an episode, and its index there; undefined where no pack has it. */
function packOf(
  { packs }: ExportedRun,
  file: string,
  index: number,
): { readonly pack: number; readonly at: number } | undefined {
  for (const [pack, spans] of packs.entries()) {
    let at = 0;
    for (const span of spans) {
      if (span.file === file && index >= span.first && index < span.first + span.count)
        return { pack, at: at + index - span.first };
      at += span.count;
    }
  }
  return undefined;
}
