import { createHash } from 'node:crypto';
import { lstatSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { attempted, isObject, jsonOf } from '../../../shared/json.ts';
import { VERSION } from '../../../shared/program.ts';
import { replaceFile } from '../../../shared/replace-file.ts';
import { RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import {
  configHash,
  fingerprintOf,
  MAX_RESULT_BYTES,
  type PlayedResult,
  parseSignedResult,
  type ReplayVerdict,
  type RunResult,
  type SignedEpisode,
  signedEpisode,
} from '../../../shared/run-folder/signed-result.ts';
import { parseYaml } from '../../../shared/yaml.ts';
import { objectOn, readLines } from './lines.ts';
import {
  type FoundRun,
  mapped,
  openRunFile,
  type RunFolders,
  readConfig,
  readRunText,
} from './run-folders.ts';

const MAX_AUTHORS_BYTES = 1024 * 1024;
const MAX_LINE_BYTES = 4 * 1024 * 1024;
/** Longest time in which the episodes of a run are played again. */
const REPLAY_MS = 120_000;
/** A result that could not be replayed is tried again after so long. */
const RETRY_MS = 60_000;
/** Longest cause that is shown: parts of it come from others. */
const MAX_REASON = 500;
const FINGERPRINT = /^SHA256:[\w-]{43}$/;

/**
 * Plays episodes again. @returns how many agreed, or what differs
 * @throws Error where nobody can say yet, e.g. while the server is away
 */
export type ReplayResult = (
  result: PlayedResult,
  episodes: readonly SignedEpisode[],
  signal: AbortSignal,
) => Promise<ReplayVerdict>;

/** Wishes of the host of a leaderboard. */
export interface SignedSettings {
  /** JSON file with the allowed keys, `{ "SHA256:…": "name" }`; absent: every key counts, under the name that it claims. */
  readonly authors?: string;
  /** Absent where nothing can be played: no result is listed. */
  readonly replay?: ReplayResult;
  /** Folder for the verdicts of replays, by the hash of the result. */
  readonly cache?: string;
}

/** State of the signed results of a run. */
export interface SignedRun {
  readonly run: string;
  readonly state: 'verified' | 'waiting' | 'refused';
  /** Cause, where they are refused. */
  readonly reason?: string;
  /** Name by the host's list, or as claimed; absent where no signature holds. */
  readonly author?: { readonly name: string; readonly fingerprint: string };
  /** Verified results, each with the number of episodes that were played again. */
  readonly results?: readonly (PlayedResult & { readonly replayed: number })[];
  readonly about?: Pick<RunResult, 'date' | 'version' | 'command' | 'config_sha256'>;
}

export interface SignedReply {
  /** The host names authors, or there is a signed result: those without a signature are listed apart. */
  readonly group: boolean;
  readonly runs: readonly SignedRun[];
}

interface Outcome extends SignedRun {
  /** Hashes of its files of episodes, and when they were verified first. */
  readonly files?: readonly string[];
  readonly verifiedAt?: string;
}

interface Known {
  /** State of the files that the outcome depends on. */
  readonly stamp: string;
  readonly names: readonly string[];
  readonly outcome: Outcome;
  readonly retryAt?: number;
  /** Its key was on no list, so that nothing else was checked. */
  readonly isStranger?: boolean;
}

/** A result that is not listed; the message says why. */
class Refused extends Error {}

/** Checks the signed results of runs, one after another: signature, files, and by playing the episodes again. */
export class SignedResults {
  readonly #folders: RunFolders;
  readonly #settings: SignedSettings;
  readonly #known = new Map<string, Known>();
  readonly #waiting = new Map<string, Promise<void>>();
  #queue: Promise<void> = Promise.resolve();

  constructor(folders: RunFolders, settings: SignedSettings = {}) {
    this.#folders = folders;
    this.#settings = settings;
  }

  /**
   * What is known by now; new and changed results are still being checked.
   * @throws Error for a file of authors that is wrong
   */
  async reply(): Promise<SignedReply> {
    const authors = await readAuthors(this.#settings.authors);
    const runs = [...(await this.#folders.list()).values()];
    const states = await mapped(runs, async run => {
      if (stampOf(run, [RUN_FILES.result]) === ABSENT) return [];
      return [this.#stateOf(run, authors)];
    });
    const all = withoutCopies(states.flat());
    return {
      group: authors !== undefined || all.length > 0,
      runs: all.map(({ files: _files, verifiedAt: _verifiedAt, ...shown }) => shown),
    };
  }

  /** The reply after every check that is in progress. */
  async settled(): Promise<SignedReply> {
    await this.reply();
    await Promise.all(this.#waiting.values());
    return this.reply();
  }

  #stateOf(run: FoundRun, authors: Authors): Outcome {
    const known = this.#known.get(run.id);
    const isCurrent =
      known &&
      known.stamp === stampOf(run, known.names) &&
      (known.retryAt === undefined || known.retryAt > performance.now()) &&
      !(known.isStranger && authors?.has(known.outcome.author!.fingerprint));
    if (!isCurrent && !this.#waiting.has(run.id)) this.#enqueue(run, authors);
    if (isCurrent) return allowed(known.outcome, authors);
    return { run: run.id, state: 'waiting' };
  }

  #enqueue(run: FoundRun, authors: Authors): void {
    const work = this.#queue.then(async () => {
      this.#known.set(run.id, await this.#checked(run, authors));
      this.#waiting.delete(run.id);
    });
    this.#queue = work;
    this.#waiting.set(run.id, work);
  }

  async #checked(run: FoundRun, authors: Authors): Promise<Known> {
    const names: string[] = [RUN_FILES.result, RUN_FILES.config];
    let stamp = stampOf(run, names);
    let author: SignedRun['author'];
    try {
      const text = await readRunText(run, MAX_RESULT_BYTES, RUN_FILES.result);
      if (text === undefined)
        throw new Refused(`result.json is not a regular file of at most ${MAX_RESULT_BYTES / 1024} KiB`);
      const result = resultIn(text);
      const paths = result.files.map(({ path }) => path);
      names.push(...paths);
      stamp = `${stamp},${stampOf(run, paths)}`;
      const fingerprint = fingerprintOf(result.author.public_key);
      author = { name: result.author.name, fingerprint };
      // A stranger's result costs no replay.
      if (authors && !authors.has(fingerprint)) {
        const outcome = { run: run.id, state: 'refused', author, reason: STRANGER } as const;
        return { stamp, names, outcome, isStranger: true };
      }
      await checkConfig(run, result);
      const { replayed, verifiedAt } = await this.#replayed(text, run, result);
      const { date, version, command, config_sha256 } = result;
      const outcome: Outcome = {
        ...{ run: run.id, state: 'verified', author, about: { date, version, command, config_sha256 } },
        results: result.results.map((one, i) => ({ ...one, replayed: replayed[i] })),
        ...{ files: result.files.map(({ sha256 }) => sha256), verifiedAt },
      };
      return { stamp, names, outcome };
    } catch (error) {
      const message = (error as Error).message.slice(0, MAX_REASON);
      const outcome = { run: run.id, state: 'refused', reason: message, ...(author && { author }) } as const;
      const passing = error instanceof Refused ? {} : { retryAt: performance.now() + RETRY_MS };
      return { stamp, names, outcome, ...passing };
    }
  }

  /** Checks every file and plays its results again, unless a verdict on these results is kept. One file is held at a time. */
  async #replayed(
    text: string,
    run: FoundRun,
    { results, files }: RunResult,
  ): Promise<{ readonly replayed: readonly number[]; readonly verifiedAt: string }> {
    const { replay, cache } = this.#settings;
    const kept = cache && join(cache, `${sha256(`${VERSION}\n${text}`)}.json`);
    const verdict = kept === undefined ? undefined : await keptVerdict(kept, results.length);
    const signal = AbortSignal.timeout(REPLAY_MS);
    const replayed = new Array<number>(results.length).fill(0);
    for (const file of files) {
      const episodes = await readEpisodes(run, file);
      if (verdict || !replay) continue;
      for (const [i, one] of results.entries()) {
        if (one.episodes === file.path) replayed[i] = await agreed(replay, one, episodes, signal);
      }
    }
    if (verdict) return verdict;
    if (!replay)
      throw new Refused(
        'it was not played again: start the dashboard with --server and an environment server',
      );
    const found = { replayed, verifiedAt: new Date().toISOString() };
    if (cache && kept) {
      await mkdir(cache, { recursive: true, mode: 0o700 });
      await replaceFile(kept, temporary => writeFile(temporary, JSON.stringify(found), { mode: 0o600 }));
    }
    return found;
  }
}

/** Plays a result again. @returns how many episodes agreed @throws Refused where one differs; Error where nobody can say yet */
async function agreed(
  replay: ReplayResult,
  result: PlayedResult,
  episodes: readonly SignedEpisode[],
  signal: AbortSignal,
): Promise<number> {
  const own = episodes.filter(({ tag }) => tag === result.tag);
  const verdict = await replay(result, own, signal).catch(error => {
    throw new Error(`it could not be played again: ${(error as Error).message}`);
  });
  if ('differs' in verdict) throw new Refused(`it does not agree when played again: ${verdict.differs}`);
  return verdict.replayed;
}

const STRANGER = 'its key is not among the authors of this leaderboard';
const ABSENT = 'absent';

/** Identity and state of files; a changed file has another one, even with the size and time of modification that it had. */
function stampOf(run: FoundRun, names: readonly string[]): string {
  return names
    .map(name => {
      const stats = attempted(() => lstatSync(join(run.path, name), { throwIfNoEntry: false }));
      return stats ? `${stats.ino} ${stats.size} ${stats.ctimeMs}` : ABSENT;
    })
    .join();
}

function resultIn(text: string): RunResult {
  try {
    return parseSignedResult(text).result;
  } catch (error) {
    throw new Refused((error as Error).message);
  }
}

/** A result belongs to the run with this config. */
async function checkConfig(run: FoundRun, result: RunResult): Promise<void> {
  const text = await readConfig(run);
  let config: { readonly run?: { readonly name?: unknown } };
  let hash: string;
  try {
    config = parseYaml(text ?? '') as typeof config;
    hash = configHash(config);
  } catch (error) {
    throw new Refused(`config.yaml cannot be read: ${(error as Error).message}`);
  }
  const name = config.run?.name;
  if (name !== result.run)
    throw new Refused(
      `it is the result of the run ${result.run}, and this one is ${String(name).slice(0, 300)}`,
    );
  if (hash !== result.config_sha256) throw new Refused('config.yaml is not the one that was signed');
}

/** Reads the episodes of a file once, and hashes the very bytes that they come from. */
async function readEpisodes(
  run: FoundRun,
  { path, bytes, sha256: signed }: RunResult['files'][number],
): Promise<SignedEpisode[]> {
  await using opened = await openRunFile(run, ...path.split('/'));
  if (!opened) throw new Refused(`${path} is missing, or not a regular file`);
  const { handle, stats } = opened;
  if (stats.size !== bytes) throw new Refused(`${path} has ${stats.size} bytes, and ${bytes} were signed`);
  const hash = createHash('sha256');
  const episodes: SignedEpisode[] = [];
  let count = 0;
  const end = await readLines(handle, 0, MAX_LINE_BYTES, line => {
    count++;
    if (!line.bytes || line.end > bytes) throw new Refused(`${path}: line ${count} is too long`);
    hash.update(line.bytes).update('\n');
    try {
      episodes.push(signedEpisode(objectOn(line)));
    } catch (error) {
      throw new Refused(`${path}: line ${count}: ${(error as Error).message}`);
    }
  });
  if (end !== bytes) throw new Refused(`${path} ends within a line`);
  if (hash.digest('hex') !== signed) throw new Refused(`${path} was changed after it was signed`);
  return episodes;
}

async function keptVerdict(file: string, results: number) {
  try {
    const { replayed, verifiedAt } = JSON.parse(await readFile(file, 'utf8'));
    const counts = Array.isArray(replayed) && replayed.every(Number.isInteger) && replayed.length === results;
    return counts && typeof verifiedAt === 'string'
      ? { replayed: replayed as readonly number[], verifiedAt }
      : undefined;
  } catch {
    return undefined;
  }
}

type Authors = ReadonlyMap<string, string> | undefined;

/** Names by the fingerprint of the key. @throws Error naming the entry that is wrong */
export async function readAuthors(file: string | undefined): Promise<Authors> {
  if (file === undefined) return undefined;
  const text = await readFile(file, 'utf8');
  if (text.length > MAX_AUTHORS_BYTES) throw new Error(`${file} has more than ${MAX_AUTHORS_BYTES} bytes`);
  const value = jsonOf(text, reason => new Error(`${file} is not JSON: ${reason}`));
  if (!isObject(value))
    throw new Error(`${file}: an object of names by fingerprint is wanted, { "SHA256:…": "Ada" }`);
  for (const [fingerprint, name] of Object.entries(value)) {
    if (!FINGERPRINT.test(fingerprint) || typeof name !== 'string' || name === '')
      throw new Error(
        `${file}: "${fingerprint}": a fingerprint, SHA256: and 43 characters, with a name is wanted`,
      );
  }
  return new Map(Object.entries(value as { [fingerprint: string]: string }));
}

/** An outcome under the host's name for the author; refused where the key is not on the list by now. */
function allowed(outcome: Outcome, authors: Authors): Outcome {
  const { author, run } = outcome;
  if (!authors || !author) return outcome;
  const name = authors.get(author.fingerprint);
  if (name === undefined) return { run, state: 'refused', author, reason: STRANGER };
  return { ...outcome, author: { ...author, name } };
}

/** The outcomes, where of runs with the same episodes only the one that was verified first is listed. */
function withoutCopies(outcomes: readonly Outcome[]): Outcome[] {
  const first = new Map<string, Outcome>();
  for (const outcome of outcomes) {
    for (const file of outcome.files ?? []) {
      const other = first.get(file);
      if (!other || outcome.verifiedAt! < other.verifiedAt!) first.set(file, outcome);
    }
  }
  return outcomes.map(outcome => {
    const other = outcome.files?.map(file => first.get(file)!).find(one => one !== outcome);
    if (!other) return outcome;
    const { run, author } = outcome;
    return {
      run,
      state: 'refused',
      author,
      reason: `its episodes are those of ${other.run}, which came first`,
    };
  });
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
