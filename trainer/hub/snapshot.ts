import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, rename, rm, stat, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { lock } from 'proper-lockfile';
import { closing } from '../../shared/closing.ts';
import { retry } from '../../shared/http/retry.ts';
import { mapConcurrently } from '../../shared/scheduling/queues.ts';
import {
  cachedSnapshot,
  hasFile,
  isCommit,
  ModelCache,
  type ModelName,
  modelOfSnapshot,
  shownModelName,
} from './cache.ts';
import {
  type HubAnswer,
  HubClient,
  type HubClientOptions,
  isUnreachable,
  PassingError,
} from './hub-client.ts';
import { allowedFiles, HubError, type HubSettings } from './hub-settings.ts';

/** Files that are queried and downloaded at once. */
const DESCRIBED_AT_ONCE = 8;
const DOWNLOADED_AT_ONCE = 3;
const GIGABYTE = 1e9;

export interface SnapshotOptions extends HubClientOptions {
  readonly settings: HubSettings;
  /** Downloads files with these names only; absent: everything a model is read from. */
  readonly only?: (name: string) => boolean;
  /** Called as bytes arrive, with the bytes so far and their total. */
  readonly progress?: (bytes: number, total: number) => void;
}

/** A local model. */
export interface Snapshot {
  /** The model at the commit of its revision. */
  readonly model: ModelName;
  /** Its folder, or its GGUF file. */
  readonly folder: string;
}

interface Repository {
  readonly commit: string;
  readonly files: readonly string[];
}

/**
 * A model in the cache; missing files are downloaded. Where the hub cannot be reached, or must not be asked, the cached
 * revision is used.
 * @throws HubError naming what is missing, with the remedy
 */
export async function fetchSnapshot(model: ModelName, options: SnapshotOptions): Promise<Snapshot> {
  const { settings, note = () => {}, only = () => true } = options;
  const shown = shownModelName(model);
  const cached = cachedSnapshot(settings.cache, model);
  if (settings.offline) {
    if (cached !== undefined) return atCommit(model, cached);
    throw new HubError(
      `${shown} is not in the cache ${settings.cache}, and HF_HUB_OFFLINE forbids asking for it: unset that, or copy the model's folder there`,
    );
  }
  await using client = closing(new HubClient(settings, options));
  const repository = await listed(client, model, cached !== undefined);
  if (repository === null) {
    note(`${settings.endpoint} cannot be reached: using ${shown} as the cache holds it`);
    return atCommit(model, cached!);
  }
  const pinned = { ...model, revision: repository.commit };
  const cache = new ModelCache(settings.cache, model.id);
  const folder = cache.snapshot(repository.commit);
  const names = allowedFiles(repository.files, shown, model.file).filter(only);
  const missing: string[] = [];
  for (const name of names) if (!(await hasFile(folder, name))) missing.push(name);
  await bring(client, cache, pinned, missing, options);
  await cache.writeRef(model.revision, repository.commit);
  return { model: pinned, folder: model.file === undefined ? folder : join(folder, model.file) };
}

function atCommit(model: ModelName, folder: string): Snapshot {
  return { model: { ...model, revision: modelOfSnapshot(folder)!.revision }, folder };
}

/** Files of a repository at a revision; null where the hub does not answer and the cache can be used instead. */
async function listed(client: HubClient, model: ModelName, replaceable: boolean): Promise<Repository | null> {
  const { id, revision } = model;
  const shown = shownModelName(model);
  const path = `api/models/${id}/revision/${encodeURIComponent(revision)}`;
  try {
    const found = (await client.json(path, shown)) as { sha?: unknown; siblings?: unknown };
    const files = (Array.isArray(found.siblings) ? found.siblings : []).map(
      (entry: { rfilename?: unknown } | null) => entry?.rfilename,
    );
    if (
      typeof found.sha !== 'string' ||
      !isCommit(found.sha) ||
      !files.every(name => typeof name === 'string')
    ) {
      throw new HubError(`${client.settings.endpoint} does not say what ${shown} holds: is it a hub?`);
    }
    return { commit: found.sha, files };
  } catch (error) {
    if (replaceable && isUnreachable(error)) return null;
    throw error;
  }
}

async function bring(
  client: HubClient,
  cache: ModelCache,
  model: ModelName,
  names: readonly string[],
  { progress = () => {}, note = () => {} }: SnapshotOptions,
): Promise<void> {
  if (names.length === 0) return;
  const files = await mapConcurrently(names, DESCRIBED_AT_ONCE, name => describeFile(client, model, name));
  const total = files.reduce((sum, { bytes }) => sum + bytes, 0);
  await refuseFullDisk(cache.folder, total, shownModelName(model));
  note(
    `downloading ${shownModelName(model)}: ${files.length} files, ${(total / GIGABYTE).toFixed(2)} GB, to ${cache.folder}`,
  );
  let arrived = 0;
  // Small files first, so that faults of a model show before its weights are downloaded.
  files.sort((a, b) => a.bytes - b.bytes);
  await mapConcurrently(files, DOWNLOADED_AT_ONCE, async file => {
    await downloadBlob(client, cache, model, file, bytes => {
      arrived += bytes;
      progress(arrived, total);
    });
    await cache.link(model.revision, file.name, file.etag);
  });
}

/** @throws HubError where the disk has less room than the missing files need */
async function refuseFullDisk(folder: string, bytes: number, shown: string): Promise<void> {
  await mkdir(join(folder, 'blobs'), { recursive: true });
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  if (free >= bytes) return;
  throw new HubError(
    `${shown} takes ${(bytes / GIGABYTE).toFixed(2)} GB, the disk of ${folder} has ${(free / GIGABYTE).toFixed(2)} GB left: free space, or set HF_HOME to another disk`,
  );
}

const ETAG = /^[A-Za-z0-9_-]{1,128}$/;
const SHA256_DIGITS = 64;
const SHA1_DIGITS = 40;
const PARTIAL_CONTENT = 206;
const RANGE_NOT_SATISFIABLE = 416;

/** A file of a model, as described by the hub. */
interface RemoteFile {
  readonly name: string;
  /** Its name in the cache: SHA-256 for large files, git's hash for small ones. */
  readonly etag: string;
  readonly bytes: number;
}

/** Hash, size and commit of a file. @throws HubError */
async function describeFile(client: HubClient, model: ModelName, name: string): Promise<RemoteFile> {
  const what = `${name} of ${shownModelName(model)}`;
  return client.retried(what, async () => {
    const answer = await client.send(filePath(model, name), {
      method: 'HEAD',
      headers: { 'accept-encoding': 'identity' },
      stay: true,
    });
    await answer.body.dump();
    if (answer.status >= 400) throw client.refused(answer, what);
    const { headers } = answer;
    const etag = String(headers['x-linked-etag'] ?? headers.etag ?? '').replace(/^W\/|"/g, '');
    const bytes = Number(headers['x-linked-size'] ?? headers['content-length']);
    if (!ETAG.test(etag) || !Number.isInteger(bytes) || bytes < 0) {
      throw new HubError(
        `${answer.url.origin} describes ${what} without ${ETAG.test(etag) ? 'its size' : 'an ETag'}: is it a hub?`,
      );
    }
    return { name, etag, bytes };
  });
}

/**
 * Downloads a file into the cache, resuming an earlier attempt, and checks its hash. Of several processes one
 * downloads; the others wait.
 * @param progress called with bytes as they arrive; negative when bytes are discarded
 * @throws HubError when the hash is wrong or the disk is full
 */
async function downloadBlob(
  client: HubClient,
  cache: ModelCache,
  model: ModelName,
  file: RemoteFile,
  progress: (bytes: number) => void,
): Promise<void> {
  const what = `${file.name} of ${shownModelName(model)}`;
  const blob = cache.blob(file.etag);
  const partial = cache.partial(file.etag);
  const lockfilePath = cache.lock(file.etag);
  await Promise.all([blob, lockfilePath].map(path => mkdir(dirname(path), { recursive: true })));
  const unlock = await lockFile(blob, lockfilePath, what, client);
  try {
    if ((await sizeOf(blob)) === file.bytes) {
      progress(file.bytes);
      return;
    }
    let corrupt = 0;
    await client.retried(what, async () => {
      await fetchRest({ client, model, file, partial, what, progress });
      const found = await hashOf(partial, file);
      if (found === undefined || found === file.etag) return;
      await rm(partial, { force: true });
      progress(-file.bytes);
      const message = `${what} arrived with the hash ${found}, the hub names ${file.etag}`;
      if (++corrupt > 1)
        throw new HubError(`${message}, twice: what is between here and the hub changes files`);
      throw new PassingError(message, {});
    });
    await rename(partial, blob);
  } catch (error) {
    throw (error as NodeJS.ErrnoException).code === 'ENOSPC'
      ? new HubError(
          `the disk of ${cache.folder} is full; free space or set HF_HOME, then start again: what has arrived is kept`,
          {
            cause: error,
          },
        )
      : error;
  } finally {
    await unlock();
  }
}

interface Fetch {
  readonly client: HubClient;
  readonly model: ModelName;
  readonly file: RemoteFile;
  readonly partial: string;
  readonly what: string;
  readonly progress: (bytes: number) => void;
}

/**
 * Appends the missing bytes to the partial file.
 * @throws PassingError where the connection ends early
 */
async function fetchRest({ client, model, file, partial, what, progress }: Fetch): Promise<void> {
  let have = (await sizeOf(partial)) ?? 0;
  if (have > file.bytes) {
    await rm(partial);
    have = 0;
  }
  if (have === file.bytes && have > 0) {
    progress(have);
    return;
  }
  const answer = await client.send(filePath(model, file.name), {
    headers: { 'accept-encoding': 'identity', ...(have > 0 ? { range: `bytes=${have}-` } : undefined) },
  });
  if (answer.status === RANGE_NOT_SATISFIABLE || (have > 0 && !continues(answer, have, file.bytes))) {
    await answer.body.dump();
    await rm(partial, { force: true });
    throw new PassingError(`${what} cannot be resumed where it ended`, {});
  }
  if (answer.status >= 300) {
    await answer.body.dump();
    throw client.refused(answer, what);
  }
  const start = answer.status === PARTIAL_CONTENT ? have : 0;
  const handle = await open(partial, start > 0 ? 'a' : 'w');
  let arrived = start;
  progress(start);
  try {
    for await (const chunk of answer.body as AsyncIterable<Buffer>) {
      if (arrived + chunk.length > file.bytes) {
        await rm(partial, { force: true });
        throw new HubError(`${what} is longer than the ${file.bytes} bytes that the hub names`);
      }
      await handle.writeFile(chunk);
      arrived += chunk.length;
      progress(chunk.length);
    }
    await handle.sync();
  } catch (error) {
    progress(-arrived);
    throw error;
  } finally {
    await handle.close();
  }
  if (arrived === file.bytes) return;
  progress(-arrived);
  throw new PassingError(`${what} ended after ${arrived} of ${file.bytes} bytes`, {});
}

/**
 * True if a response begins where the partial file ends, in a file of the same size; true for a whole response, too.
 */
function continues({ status, headers }: HubAnswer, have: number, bytes: number): boolean {
  if (status !== PARTIAL_CONTENT) return status < 400 || status === 429 || status >= 500;
  return headers['content-range'] === `bytes ${have}-${bytes - 1}/${bytes}`;
}

/** The hash of a file in the form of its ETag; undefined for another form. */
async function hashOf(path: string, { etag, bytes }: RemoteFile): Promise<string | undefined> {
  let hash: Hash;
  if (etag.length === SHA256_DIGITS) hash = createHash('sha256');
  else if (etag.length === SHA1_DIGITS) hash = createHash('sha1').update(`blob ${bytes}\0`);
  else return undefined;
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

async function sizeOf(path: string): Promise<number | undefined> {
  return stat(path).then(
    ({ size }) => size,
    () => undefined,
  );
}

function filePath({ id, revision }: ModelName, name: string): string {
  return `${id}/resolve/${encodeURIComponent(revision)}/${encodeURIComponent(name)}`;
}

/** A process that has not renewed its lock for this long has ended. */
const STALE_LOCK_MS = 20_000;
const RETRY_MS = 500;
const LONGEST_WAIT_MS = 3_600_000;

/**
 * Locks a file against other processes, waiting up to an hour for another's lock.
 * @param what the file and model, for notes and errors
 * @returns releases the lock
 * @throws HubError after an hour; AbortError, or the signal's reason, once it is aborted
 */
function lockFile(
  path: string,
  lockfilePath: string,
  what: string,
  { signal, note }: Pick<HubClient, 'signal' | 'note'>,
): Promise<() => Promise<void>> {
  const attempt = () => lock(path, { realpath: false, lockfilePath, stale: STALE_LOCK_MS, retries: 0 });
  const pauseAfter = (error: unknown, attempts: number): number => {
    if ((error as NodeJS.ErrnoException).code !== 'ELOCKED') throw error;
    if (attempts === 1) note(`another process is downloading ${what}: waiting for it (${lockfilePath})`);
    if (attempts * RETRY_MS <= LONGEST_WAIT_MS) return RETRY_MS;
    throw new HubError(
      `another process has been downloading ${what} for an hour: end it, or remove ${lockfilePath}, then start again`,
      { cause: error },
    );
  };
  return retry(attempt, pauseAfter, signal);
}
