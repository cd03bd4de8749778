import { filtered } from '../../../shared/run-folder/episode-filter.ts';
import { findIn, type SearchQuery, searchFiles } from '../../compute/episode-search.ts';
import { groupRuns, parseRunQuery, resolvedKey, runMatcher, runOrder } from '../../compute/run-query.ts';
import type { RunDetail, RunsReply, SearchReply } from '../../server/reader/run-reader.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import type {
  EpisodeDigest,
  EpisodeReply,
  SearchHit,
  TrajectoryFile,
} from '../../server/reader/trajectories.ts';
import type { Query } from './query.ts';

/** Longest time of a search, and number of files read at once. */
const SEARCH_MS = 5000;
const AT_ONCE = 8;

type Read = <T>(url: string) => Promise<T>;

/** The file that answers a query; the exporter writes it there. */
export function exportedPath(name: string, { id, file, index }: Query): string {
  const parts = [id, file, index].flatMap(part => (part === undefined ? [] : [fileName(String(part))]));
  return `data/${[name, ...parts].join('/')}.json`;
}

/** A name that every file system and web server takes as it is. */
export function fileName(text: string): string {
  return encodeURIComponent(text).replaceAll('%', '~').replaceAll('.', '~2E').replaceAll('*', '~2A');
}

/** Answers what a server would compute from the files of an exported site. */
export class ExportedData {
  readonly #read: Read;
  #runs: Promise<RunsReply> | undefined;

  constructor(read: Read) {
    this.#read = read;
  }

  get(name: string, query: Query): Promise<unknown> {
    if (name === 'runs') return this.#rows(query);
    if (name === 'search') return this.#search(query);
    if (name === 'run-summary') return this.#read(exportedPath(name, {}));
    if (name === 'run-groups')
      return this.#matching(String(query.q ?? ''), '').then(rows =>
        groupRuns(rows, String(query.by), settingOf),
      );
    return this.#read(exportedPath(name, query));
  }

  async #rows({ offset = 0, limit, q = '', sort = '' }: Query): Promise<RunsReply> {
    const { total } = await this.#all();
    const matching = await this.#matching(String(q), String(sort));
    const start = Number(offset);
    const end = limit === undefined ? undefined : start + Number(limit);
    return { total, matching: matching.length, offset: start, rows: matching.slice(start, end) };
  }

  #all(): Promise<RunsReply> {
    this.#runs ??= this.#read<RunsReply>(exportedPath('runs', {}));
    return this.#runs;
  }

  async #matching(q: string, sort: string): Promise<RunRow[]> {
    const found = (await this.#all()).rows.filter(runMatcher(parseRunQuery(q), settingOf));
    return sort === '' ? found : found.sort(runOrder(sort, settingOf));
  }

  /** As the server's: a page of the episodes that pass the filters and have the text. */
  async #search({ id, ...query }: Query): Promise<SearchReply> {
    const { files } = await this.#read<RunDetail>(exportedPath('run', { id }));
    return searchFiles(files, query as SearchQuery, SEARCH_MS, (name, first, most) =>
      this.#hitsIn(id, name, query as SearchQuery, { first, most }),
    );
  }

  async #hitsIn(
    id: Query[string],
    file: TrajectoryFile['name'],
    query: SearchQuery,
    { first, most }: { readonly first: number; readonly most: number },
  ): Promise<SearchHit[]> {
    const all = await this.#read<EpisodeDigest[]>(exportedPath('episodes', { id, file }));
    const digests = filtered(all, query).filter(({ index }) => index >= first);
    const wanted = (query.q ?? '').toLowerCase();
    const hits: SearchHit[] = [];
    for (let start = 0; start < digests.length && hits.length < most; start += AT_ONCE) {
      const found = digests.slice(start, start + AT_ONCE).map(async digest => {
        const { index } = digest;
        const { episode, texts } = await this.#read<EpisodeReply>(
          exportedPath('episode', { id, file, index }),
        );
        const hit = findIn(episode, wanted, token => texts[token]);
        return hit ? [{ file, index, ...hit, digest }] : [];
      });
      hits.push(...(await Promise.all(found)).flat());
    }
    return hits.slice(0, most);
  }
}

function settingOf({ settings = {} }: RunRow, name: string) {
  const key = resolvedKey(new Set(Object.keys(settings)), name);
  return key === undefined ? undefined : settings[key];
}
