import { randomUUID } from 'node:crypto';
import { lstat, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { isAlive, processStart } from '../../../shared/run-folder/is-alive.ts';
import { SerialQueue } from '../../../shared/scheduling/serial-queue.ts';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import { withLora } from '../../models/adapters/peft.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { readAdapterConfig } from '../../policy/checkpoint/model-folder.ts';
import { ApiError, badRequest } from '../openai/errors.ts';
import type { AdapterWeights } from './samplers.ts';

const INFO_FILE = 'tinker.json';
/** Name of a checkpoint: one part of a path that every file system reads in the same way. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const MODEL_ID = /^([0-9a-f-]{36}):train:(\d{1,9})$/;
/**
 * A folder in progress, `.<process>.<its start>.<id>`; next to a checkpoint it is the replaced one, with its name
 * at the end.
 */
const HIDDEN = /^\.(\d{1,10})\.(\d*)\.[0-9a-f-]{36}(?:\.([^\\/]+))?$/;
const OWN_HIDDEN = `.${process.pid}.${processStart(process.pid) ?? ''}.`;
/** The file that a checkpoint ends with, below the folder of checkpoints. */
const CHECKPOINT = /^[0-9a-f-]{36}-train-\d{1,9}[\\/](?:sampler_)?weights[\\/][^\\/]+[\\/]tinker\.json$/;
/** Most files below the folder of checkpoints. */
const MAX_FILES = 5_000;
/** The most of the folder that the checkpoints of one key take. */
const KEY_SHARE = 3 / 4;
/** Kinds of checkpoints in paths and in lists. */
const KINDS = { weights: 'training', sampler_weights: 'sampler' } as const;

export type CheckpointKind = keyof typeof KINDS;

/** Facts of a checkpoint besides its adapter, in `tinker.json`. */
interface CheckpointInfo {
  /** Distinguishes consecutive checkpoints with the same name. */
  readonly id: string;
  readonly base_model: string;
  /** Hash of the key that wrote it; other keys do not find it. */
  readonly owner: string;
  /** ISO 8601. */
  readonly time: string;
  /** Milliseconds since 1970; null: never. */
  readonly expires: number | null;
}

export interface FoundCheckpoint extends CheckpointInfo {
  readonly folder: string;
  readonly lora: LoraConfig;
}

export interface NewCheckpoint extends Pick<CheckpointInfo, 'base_model' | 'owner'> {
  readonly kind: CheckpointKind;
  readonly name: string;
  readonly ttlSeconds?: number | null;
  readonly overwrite?: boolean | null;
}

/**
 * Named checkpoints in a folder: `<session>-train-<n>/weights/<name>/` holds the adapter in PEFT's layout with its
 * optimizer, `…/sampler_weights/<name>/` the adapter alone. Each appears whole or not at all.
 */
export class Checkpoints {
  readonly #folder: string;
  readonly #maxMebibytes: number;
  /** Saves, one at a time: each measures what is there. */
  readonly #saves = new SerialQueue();

  /** @param maxMebibytes limit of all files in the folder */
  constructor(folder: string, maxMebibytes: number) {
    this.#folder = folder;
    this.#maxMebibytes = maxMebibytes;
    void this.#saves.run(() => this.#removeAbandoned());
  }

  /**
   * Writes a checkpoint.
   * @param write fills a folder
   * @returns its `tinker://` path
   * @throws ApiError 400 for a name that is not a plain file name, or that is taken and not to be replaced, and where
   *   there is no room
   */
  save(
    modelId: string,
    { kind, name, ttlSeconds, overwrite, ...facts }: NewCheckpoint,
    write: (folder: string) => Promise<void>,
  ): Promise<string> {
    if (!NAME.test(name)) {
      const fault = `the checkpoint name ${JSON.stringify(name.slice(0, 200))} is not valid`;
      const rule = 'use 1 to 128 letters, digits, "-", "_" and ".", beginning with a letter or digit';
      throw badRequest(`${fault}: ${rule}`, 'path');
    }
    const path = `tinker://${modelId}/${kind}/${name}`;
    const folder = join(this.#folderOf(modelId), kind, name);
    return this.#saves.run(async () => {
      if ((await currentInfo(folder)) && !overwrite)
        throw badRequest(`${path} exists: choose another name, or set overwrite`, 'path');
      const id = randomUUID();
      const temporary = join(this.#folder, OWN_HIDDEN + id);
      await mkdir(temporary, { recursive: true });
      try {
        await write(temporary);
        const expires = ttlSeconds ? Date.now() + ttlSeconds * 1000 : null;
        const info: CheckpointInfo = { id, ...facts, time: new Date().toISOString(), expires };
        await writeFile(join(temporary, INFO_FILE), `${JSON.stringify(info, null, 2)}\n`);
        await this.#checkRoom(relative(this.#folder, temporary), relative(this.#folder, folder), facts.owner);
        await mkdir(dirname(folder), { recursive: true });
        await this.#replace(folder, temporary);
      } finally {
        await rm(temporary, { recursive: true, force: true });
      }
      return path;
    });
  }

  /** @throws ApiError 404 where the path names no checkpoint of this owner */
  async find(path: string, owner: string): Promise<FoundCheckpoint> {
    const [scheme, , modelId, kind, name, ...more] = path.split('/');
    if (scheme === 'tinker:' && Object.hasOwn(KINDS, kind) && NAME.test(name) && more.length === 0) {
      const folder = join(this.#folderOf(modelId), kind, name);
      const info = await currentInfo(folder);
      if (info?.owner === owner) return { ...info, folder, lora: (await readAdapterConfig(folder)).lora };
    }
    throw new ApiError(404, `there is no checkpoint ${JSON.stringify(path.slice(0, 300))}`);
  }

  /** The checkpoints of a model that belong to an owner. */
  async list(modelId: string, owner: string): Promise<object[]> {
    const entries: object[] = [];
    for (const [kind, checkpoint_type] of Object.entries(KINDS)) {
      const parent = join(this.#folderOf(modelId), kind);
      const names = await readdir(parent).catch(() => []);
      for (const name of names.filter(one => NAME.test(one)).sort()) {
        const info = await currentInfo(join(parent, name));
        if (info?.owner !== owner) continue;
        const checkpoint_id = `${kind}/${name}`;
        const tinker_path = `tinker://${modelId}/${checkpoint_id}`;
        const size_bytes = total((await sizesBelow(join(parent, name))).values());
        entries.push({ checkpoint_id, checkpoint_type, time: info.time, tinker_path, size_bytes });
      }
    }
    return entries;
  }

  /** @throws ApiError 404 where the path names no checkpoint of this owner */
  async delete(path: string, owner: string): Promise<void> {
    const { folder } = await this.find(path, owner);
    await this.#saves.run(() => this.#remove(folder));
  }

  /** The adapter of a checkpoint, read when it is used. @param base without an adapter */
  adapterOf(checkpoint: FoundCheckpoint, base: DecoderConfig): AdapterWeights {
    const load: AdapterWeights['load'] = async policy => {
      const fault = await policy.load(checkpoint.folder).catch((error: Error) => error);
      // It may expire meanwhile: its weights are whole until a save removes it.
      await this.check(checkpoint, readInfo);
      if (fault) throw fault;
    };
    return { key: checkpoint.id, lora: withLora(base, checkpoint.lora).lora!, load };
  }

  /** @throws ApiError 404 if a sampler's checkpoint is no longer there */
  async check({ folder, id }: FoundCheckpoint, read = currentInfo): Promise<void> {
    if ((await read(folder))?.id === id) return;
    throw new ApiError(404, 'the checkpoint of this sampler was deleted or overwritten, or has expired');
  }

  /** Removes what processes that have ended left half written, and puts back what they did not replace. */
  async #removeAbandoned(): Promise<void> {
    const models = (await readdir(this.#folder).catch(() => [])).map(name => join(this.#folder, name));
    const kinds = models.flatMap(model => Object.keys(KINDS).map(kind => join(model, kind)));
    for (const parent of [this.#folder, ...kinds]) {
      for (const entry of await readdir(parent).catch(() => [])) {
        const [hidden, pid, start, name] = HIDDEN.exec(entry) ?? [];
        if (!hidden || isAlive(Number(pid), start || null)) continue;
        const path = join(parent, entry);
        // Fails where there is a newer one.
        if (name !== undefined) await rename(path, join(parent, name)).catch(() => {});
        await rm(path, { recursive: true, force: true }).catch(() => {});
      }
    }
  }

  /** Puts a folder in the place of another one, which a kill in between does not lose. */
  async #replace(folder: string, by: string): Promise<void> {
    const old = join(dirname(folder), `${OWN_HIDDEN}${randomUUID()}.${basename(folder)}`);
    await renameIfThere(folder, old);
    try {
      await rename(by, folder);
    } catch (error) {
      await renameIfThere(old, folder);
      throw error;
    }
    await rm(old, { recursive: true, force: true });
  }

  /**
   * Removes expired checkpoints, and measures the others. A key leaves a quarter of the folder to other keys.
   * @param added folder of the new one
   * @param replaced folder that does not count
   * @throws ApiError 400
   */
  async #checkRoom(added: string, replaced: string, owner: string): Promise<void> {
    const sizes = await sizesBelow(this.#folder);
    const gone = new Set([replaced]);
    const own = new Set([added]);
    for (const file of sizes.keys()) {
      if (!CHECKPOINT.test(file)) continue;
      const folder = dirname(file);
      const info = await readInfo(join(this.#folder, folder));
      if (info?.owner === owner) own.add(folder);
      if (!info || isCurrent(info)) continue;
      await this.#remove(join(this.#folder, folder));
      gone.add(folder);
    }
    const left = [...sizes].filter(([file]) => !gone.has(dirname(file)));
    const check = (of: string, files: typeof left, share: number) => {
      const mebibytes = total(files.map(([, size]) => size)) / 2 ** 20;
      const [most, mostMebibytes] = [share * MAX_FILES, share * this.#maxMebibytes];
      if (files.length <= most && mebibytes <= mostMebibytes) return;
      const found = `${files.length} files with ${Math.ceil(mebibytes)} MiB`;
      const limit = `${most} files and ${mostMebibytes} MiB (--max-checkpoint-mb)`;
      throw badRequest(
        `with this one ${of} would have ${found}, and the most are ${limit}: delete some, or save with ttl_seconds`,
      );
    };
    check('the folder of checkpoints', left, 1);
    const ownFiles = left.filter(([file]) => own.has(dirname(file)));
    check('the checkpoints of this key', ownFiles, KEY_SHARE);
  }

  /** Removes a checkpoint in one step, so no reader sees a part of it. */
  async #remove(folder: string): Promise<void> {
    const hidden = join(this.#folder, OWN_HIDDEN + randomUUID());
    await renameIfThere(folder, hidden);
    await rm(hidden, { recursive: true, force: true });
  }

  /** @throws ApiError 404 for an id of another form */
  #folderOf(modelId: string): string {
    const [, session, number] = MODEL_ID.exec(modelId) ?? [];
    if (session) return join(this.#folder, `${session}-train-${number}`);
    throw new ApiError(404, `there is no model ${JSON.stringify(modelId.slice(0, 200))}`);
  }
}

async function renameIfThere(from: string, to: string): Promise<void> {
  const fault = await rename(from, to).catch((error: NodeJS.ErrnoException) => error);
  if (fault && fault.code !== 'ENOENT') throw fault;
}

async function readInfo(folder: string): Promise<CheckpointInfo | null> {
  try {
    const info = JSON.parse(await readFile(join(folder, INFO_FILE), 'utf8'));
    const { owner, expires } = info;
    // Something else of that name has neither.
    return typeof owner === 'string' && (expires === null || typeof expires === 'number') ? info : null;
  } catch {
    return null;
  }
}

/** Null where there is no checkpoint, or an expired one. */
async function currentInfo(folder: string): Promise<CheckpointInfo | null> {
  const info = await readInfo(folder);
  return info && isCurrent(info) ? info : null;
}

const isCurrent = ({ expires }: CheckpointInfo): boolean => expires === null || expires >= Date.now();

const total = (sizes: Iterable<number>): number => [...sizes].reduce((sum, size) => sum + size, 0);

/** Bytes of the files below a folder, by their path in it. */
async function sizesBelow(folder: string): Promise<Map<string, number>> {
  const sizes = new Map<string, number>();
  for (const file of await readdir(folder, { recursive: true, withFileTypes: true })) {
    const path = join(file.parentPath, file.name);
    if (file.isFile()) sizes.set(relative(folder, path), (await lstat(path).catch(() => null))?.size ?? 0);
  }
  return sizes;
}
