import { findIn } from '../../compute/episode-search.ts';
import { runMatcher } from '../../compute/run-search.ts';
import type { RunDetail, RunsReply, SearchReply } from '../../reader/run-reader.ts';
import type { EpisodeDigest, EpisodeReply, SearchHit, TrajectoryFile } from '../../reader/trajectories.ts';
import type { Query } from './query.ts';

const MAX_HITS = 100;
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
    return this.#read(exportedPath(name, query));
  }

  async #rows({ offset = 0, limit, q = '' }: Query): Promise<RunsReply> {
    this.#runs ??= this.#read<RunsReply>(exportedPath('runs', {}));
    const { total, rows } = await this.#runs;
    const matching = q === '' ? rows : rows.filter(runMatcher(String(q)));
    const start = Number(offset);
    const end = limit === undefined ? undefined : start + Number(limit);
    return { total, matching: matching.length, offset: start, rows: matching.slice(start, end) };
  }

  /** As the server's: in one file, or in all, newest first. */
  async #search({ id, file, q = '' }: Query): Promise<SearchReply> {
    const wanted = String(q).toLowerCase();
    const { files } = await this.#read<RunDetail>(exportedPath('run', { id }));
    const chosen =
      file === undefined
        ? files.toSorted((a, b) => b.step - a.step)
        : files.filter(({ name }) => name === file);
    const until = performance.now() + SEARCH_MS;
    const hits: SearchHit[] = [];
    for (const { name } of chosen) {
      if (performance.now() > until || hits.length >= MAX_HITS) return { hits, complete: false };
      hits.push(...(await this.#hitsIn(id, name, wanted)));
    }
    return { hits: hits.slice(0, MAX_HITS), complete: hits.length <= MAX_HITS };
  }

  async #hitsIn(id: Query[string], file: TrajectoryFile['name'], wanted: string): Promise<SearchHit[]> {
    const digests = await this.#read<EpisodeDigest[]>(exportedPath('episodes', { id, file }));
    const hits: SearchHit[] = [];
    for (let start = 0; start < digests.length; start += AT_ONCE) {
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
    return hits;
  }
}
