import { mkdir, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { allowedFiles } from './allowed-files.ts';
import { cachedSnapshot, hasFile, ModelCache, modelOfSnapshot } from './cache.ts';
import { describeFile, downloadBlob, type RemoteFile } from './download.ts';
import { HubClient, type HubClientOptions, isUnreachable } from './hub-client.ts';
import { HubError } from './hub-error.ts';
import type { HubSettings } from './hub-settings.ts';
import { isCommit, type ModelName, shownModelName } from './model-name.ts';

/** Files that are asked about, and downloaded, at once. */
const DESCRIBED_AT_ONCE = 8;
const DOWNLOADED_AT_ONCE = 3;
const GIGABYTE = 1e9;

export interface SnapshotOptions extends HubClientOptions {
  readonly settings: HubSettings;
  /** Takes files of these names only; absent: all that a model is read from. */
  readonly only?: (name: string) => boolean;
  /** Called as bytes arrive, with the bytes so far and their total. */
  readonly progress?: (bytes: number, total: number) => void;
}

/** A model on this machine. */
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
 * A model in the cache, downloaded as far as it is not there. Where the hub cannot be reached, or is not to be asked, the cache
 * serves instead if it holds the revision.
 * @throws HubError saying what is missing and what to do
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
  const client = new HubClient(settings, options);
  try {
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
  } finally {
    await client.close();
  }
}

function atCommit(model: ModelName, folder: string): Snapshot {
  return { model: { ...model, revision: modelOfSnapshot(folder)!.revision }, folder };
}

/** Files of a repository at a revision; null where nobody answers and the cache can serve instead. */
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
  const files: RemoteFile[] = [];
  await eachOf(names, DESCRIBED_AT_ONCE, async name => {
    files.push(await describeFile(client, model, name));
  });
  const total = files.reduce((sum, { bytes }) => sum + bytes, 0);
  await refuseFullDisk(cache.folder, total, shownModelName(model));
  note(
    `downloading ${shownModelName(model)}: ${files.length} files, ${(total / GIGABYTE).toFixed(2)} GB, to ${cache.folder}`,
  );
  let arrived = 0;
  // Small files first: what is wrong with a model shows before its weights are here.
  files.sort((a, b) => a.bytes - b.bytes);
  await eachOf(files, DOWNLOADED_AT_ONCE, async file => {
    await downloadBlob(client, cache, model, file, bytes => {
      arrived += bytes;
      progress(arrived, total);
    });
    await cache.link(model.revision, file.name, file.etag);
  });
}

/** @throws HubError where a disk has less room than what is to come */
async function refuseFullDisk(folder: string, bytes: number, shown: string): Promise<void> {
  await mkdir(join(folder, 'blobs'), { recursive: true });
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  if (free >= bytes) return;
  throw new HubError(
    `${shown} takes ${(bytes / GIGABYTE).toFixed(2)} GB, the disk of ${folder} has ${(free / GIGABYTE).toFixed(2)} GB left: free space, or set HF_HOME to another disk`,
  );
}

/** Works on all items, so many at once; after a failure nothing new is begun, and what is open is waited for. */
async function eachOf<T>(
  items: readonly T[],
  atOnce: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  let next = 0;
  let failed = false;
  const lane = async () => {
    while (!failed && next < items.length) {
      try {
        await work(items[next++]);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const lanes = await Promise.allSettled(Array.from({ length: Math.min(atOnce, items.length) }, lane));
  const first = lanes.find(result => result.status === 'rejected');
  if (first !== undefined) throw first.reason;
}
