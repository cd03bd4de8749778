import { parseJson } from '../../../shared/json.ts';
import { RecentMap, remembered } from '../../../shared/remembered.ts';
import { filtered } from '../../../shared/run-folder/episode-filter.ts';
import { type EpisodeRecord, RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import {
  digestOf,
  type EpisodeDigest,
  findIn,
  type SearchQuery,
  type TextHit,
} from '../../compute/episode-digest.ts';
import { episodeOf } from '../../compute/episode-record.ts';
import { type Line, objectOn, readLines } from './lines.ts';
import { type FoundRun, namesIn, openRunFile } from './run-folders.ts';

const FILE_NAME = /^(train|validation)-(\d{1,9})\.jsonl$/;
const MAX_EPISODE_BYTES = 64 * 1024 * 1024;
const MAX_TOKEN_BYTES = 64 * 1024;
/** Number of files with a remembered list of episodes. */
const MAX_LISTS = 64;

/** A trajectory file. */
export interface TrajectoryFile {
  /** Its name without the ending, e.g. `train-000010`. */
  readonly name: string;
  readonly kind: 'train' | 'validation';
  readonly step: number;
}

interface EpisodeList {
  readonly digests: readonly EpisodeDigest[];
  readonly places: readonly { readonly start: number; readonly end: number }[];
}

/** An episode with the texts of its tokens. */
export interface EpisodeReply {
  readonly file: string;
  readonly index: number;
  /** Episodes in the file. */
  readonly count: number;
  readonly episode: EpisodeRecord;
  /** Token id → text, for the ids of its samples. */
  readonly texts: { readonly [id: string]: string };
}

export interface SearchHit extends TextHit {
  readonly file: string;
  readonly index: number;
  readonly digest: EpisodeDigest;
}

/** The trajectories of runs: lists of episodes by the place of their lines, and single episodes read from there. */
export class Trajectories {
  readonly #lists = new RecentMap<string, Promise<EpisodeList>>(MAX_LISTS);
  readonly #texts = new RecentMap<string, TokenTexts>(4);

  async files(run: FoundRun): Promise<TrajectoryFile[]> {
    return (await namesIn(run, RUN_FILES.trajectories, FILE_NAME)).map(name => {
      const [, kind, step] = FILE_NAME.exec(name)!;
      return {
        name: name.slice(0, -'.jsonl'.length),
        kind: kind as TrajectoryFile['kind'],
        step: Number(step),
      };
    });
  }

  /** The episodes of a file in short; undefined when there is no such file. */
  async digests(run: FoundRun, name: string): Promise<readonly EpisodeDigest[] | undefined> {
    return (await this.#list(run, name))?.digests;
  }

  /** One episode; undefined when there is none. */
  async episode(run: FoundRun, name: string, index: number): Promise<EpisodeReply | undefined> {
    const place = (await this.#list(run, name))?.places[index];
    await using file = place && (await openRunFile(run, RUN_FILES.trajectories, `${name}.jsonl`));
    if (!file) return undefined;
    const bytes = Buffer.alloc(place.end - place.start);
    await file.handle.read(bytes, 0, bytes.length, place.start);
    const episode = episodeOf(objectOn({ bytes, ...place }));
    if (!episode) return undefined;
    const ids = new Set(episode.samples.flatMap(idsIn));
    const texts = await this.#textsOf(run).of(ids);
    const count = (await this.#list(run, name))!.places.length;
    return { file: name, index, count, episode, texts };
  }

  /**
   * Episodes of a file that pass the filters and have a text in a prompt or a response, upper and lower case alike.
   * @param page from which episode on, and hits that are wanted
   */
  async search(
    run: FoundRun,
    name: string,
    query: SearchQuery,
    { first, most }: { readonly first: number; readonly most: number },
  ): Promise<SearchHit[]> {
    const list = await this.#list(run, name);
    if (!list) return [];
    const digests = filtered(list.digests, query).filter(({ index }) => index >= first);
    const wanted = new Map(digests.map(digest => [list.places[digest.index].start, digest]));
    const texts = await this.#textsOf(run).all();
    const text = (query.q ?? '').toLowerCase();
    const hits: SearchHit[] = [];
    await this.#scan(run, name, line => {
      const digest = hits.length < most ? wanted.get(line.start) : undefined;
      const record = digest && episodeOf(objectOn(line));
      const found = record && findIn(record, text, id => texts.get(id));
      if (found) hits.push({ file: name, index: digest.index, ...found, digest });
    });
    return hits;
  }

  async #list(run: FoundRun, name: string): Promise<EpisodeList | undefined> {
    if (!FILE_NAME.test(`${name}.jsonl`)) return undefined;
    await using file = await openRunFile(run, RUN_FILES.trajectories, `${name}.jsonl`);
    if (!file) return undefined;
    const { ino, size, mtimeMs } = file.stats;
    return remembered(this.#lists, `${run.path}\n${name}\n${ino}\n${size}\n${mtimeMs}`, async () => {
      const digests: EpisodeDigest[] = [];
      const places: { start: number; end: number }[] = [];
      await this.#scan(run, name, line => {
        const record = episodeOf(objectOn(line));
        if (!record) return;
        digests.push(digestOf(record, digests.length));
        places.push({ start: line.start, end: line.end });
      });
      return { digests, places };
    });
  }

  async #scan(run: FoundRun, name: string, onLine: (line: Line) => void): Promise<void> {
    await using file = await openRunFile(run, RUN_FILES.trajectories, `${name}.jsonl`);
    if (!file) return;
    await readLines(file.handle, 0, MAX_EPISODE_BYTES, onLine);
  }

  #textsOf(run: FoundRun): TokenTexts {
    return remembered(this.#texts, run.path, () => new TokenTexts(run));
  }
}

/** The texts of a run's tokens, read as they are appended. */
class TokenTexts {
  readonly #run: FoundRun;
  readonly #texts = new Map<number, string>();
  #offset = 0;

  constructor(run: FoundRun) {
    this.#run = run;
  }

  async of(ids: ReadonlySet<number>): Promise<{ readonly [id: string]: string }> {
    const all = await this.all();
    return Object.fromEntries([...ids].flatMap(id => (all.has(id) ? [[id, all.get(id)!]] : [])));
  }

  async all(): Promise<ReadonlyMap<number, string>> {
    await using file = await openRunFile(this.#run, RUN_FILES.tokens);
    if (!file) return this.#texts;
    this.#offset = await readLines(file.handle, this.#offset, MAX_TOKEN_BYTES, ({ bytes }) => {
      const pair = bytes && parseJson(bytes.toString('utf8'));
      if (Array.isArray(pair) && typeof pair[0] === 'number' && typeof pair[1] === 'string') {
        this.#texts.set(pair[0], pair[1]);
      }
    });
    return this.#texts;
  }
}

/** Ids of a sample's tokens and of those that were likeliest. */
function idsIn({
  token_ids: ids,
  top_logprobs: top = [],
}: EpisodeRecord['samples'][number]): readonly number[] {
  return [...ids, ...top.flatMap(pairs => (pairs === 0 ? [] : pairs.filter((_, i) => i % 2 === 0)))];
}
