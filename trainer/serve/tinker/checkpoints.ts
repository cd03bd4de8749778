import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { isAlive, processStart } from '../../../shared/run-folder/is-alive.ts';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import { withLora } from '../../models/adapters/peft.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { loraSpecs } from '../../models/parameters.ts';
import { readAdapterConfig, readAdapterWeights } from '../../policy/checkpoint/adapter-folder.ts';
import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import { ApiError, badRequest } from '../openai/errors.ts';
import type { AdapterWeights } from './samplers.ts';

const INFO_FILE = 'tinker.json';
/** Name of a checkpoint: one part of a path that every file system reads in the same way. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const MODEL_ID = /^([0-9a-f-]{36}):train:(\d{1,9})$/;
/**
 * A folder in progress, or overwritten while it is read: `.<process>.<its start>.<id>`, for as long as that process
 * lives.
 */
const HIDDEN = /^\.(?:(\d{1,10})\.(\d*)\.)?[0-9a-f-]{36}$/;
const OWN_HIDDEN = `.${process.pid}.${processStart(process.pid) ?? ''}.`;
/** Most checkpoints of one share. */
const MAX_CHECKPOINTS = 1000;
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
  /** The group that its limits are for: `key <owner>`, or `address <address>` where keys are made up. */
  readonly share: string;
  /** ISO 8601. */
  readonly time: string;
  /** Milliseconds since 1970; null: never. */
  readonly expires: number | null;
}

interface KnownCheckpoint extends CheckpointInfo {
  readonly bytes: number;
}

export interface FoundCheckpoint extends CheckpointInfo {
  readonly folder: string;
  readonly lora: LoraConfig;
}

export interface NewCheckpoint extends Pick<CheckpointInfo, 'base_model' | 'owner' | 'share'> {
  readonly kind: CheckpointKind;
  readonly name: string;
  readonly ttlSeconds?: number | null;
  readonly overwrite?: boolean | null;
}

/**
 * Named checkpoints in a folder: `<session>-train-<n>/weights/<name>/` holds the adapter in PEFT's layout with its optimizer,
 * `…/sampler_weights/<name>/` the adapter alone. Each appears whole or not at all. The folders are the truth, which other servers
 * and people change too; what they hold by share is read at the start, and again before a share's limit refuses a save.
 */
export class Checkpoints {
  readonly #folder: string;
  readonly #maxBytes: number;
  readonly #isUsed: (id: string) => boolean;
  /** Checkpoints by folder, with the bytes of their files, including those in progress. */
  readonly #known = new Map<string, KnownCheckpoint>();
  /** Folders of checkpoints that were overwritten while a sampler used them, by id. */
  readonly #superseded = new Map<string, string>();
  /** Resolves when the folder has been read. */
  readonly #ready: Promise<unknown>;

  /**
   * @param maxBytes limit of the checkpoints of one share
   * @param isUsed true for the id of a checkpoint that a sampler uses: it is kept when it is overwritten
   */
  constructor(folder: string, maxBytes: number, isUsed: (id: string) => boolean) {
    this.#folder = folder;
    this.#maxBytes = maxBytes;
    this.#isUsed = isUsed;
    this.#ready = this.#readAll();
  }

  /**
   * Writes a checkpoint.
   * @param write fills a folder
   * @returns its `tinker://` path
   * @throws ApiError 400 for a name that is not a plain file name, or that is taken and not to be replaced, and where the checkpoints
   *   of the share are too many or too large
   */
  async save(
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
    const parent = join(this.#folderOf(modelId), kind);
    const folder = join(parent, name);
    if ((await currentInfo(folder)) && !overwrite) {
      throw badRequest(`${path} exists: choose another name, or set overwrite`, 'path');
    }
    await this.#ready;
    await this.#removeExpired();
    await this.#checkRoom(facts.share, folder, 0);
    const id = randomUUID();
    const temporary = join(parent, OWN_HIDDEN + id);
    await mkdir(temporary, { recursive: true });
    try {
      await write(temporary);
      const bytes = await folderBytes(temporary);
      await this.#checkRoom(facts.share, folder, bytes);
      const expires = ttlSeconds ? Date.now() + ttlSeconds * 1000 : null;
      const info: CheckpointInfo = { id, ...facts, time: new Date().toISOString(), expires };
      this.#known.set(temporary, { ...info, bytes });
      await writeFile(join(temporary, INFO_FILE), `${JSON.stringify(info, null, 2)}\n`);
      await this.#retire(folder, this.#isUsed);
      await rename(temporary, folder);
    } finally {
      await rm(temporary, { recursive: true, force: true });
      this.#known.delete(temporary);
      await this.#read(folder);
    }
    return path;
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
      for (const name of (await namesIn(parent)).filter(name => NAME.test(name)).sort()) {
        const info = await this.#read(join(parent, name));
        if (info?.owner !== owner || !isCurrent(info)) continue;
        const checkpoint_id = `${kind}/${name}`;
        const tinker_path = `tinker://${modelId}/${checkpoint_id}`;
        entries.push({
          checkpoint_id,
          checkpoint_type,
          time: info.time,
          tinker_path,
          size_bytes: info.bytes,
        });
      }
    }
    return entries;
  }

  /** @throws ApiError 404 where the path names no checkpoint of this owner */
  async delete(path: string, owner: string): Promise<void> {
    await this.#retire((await this.find(path, owner)).folder);
  }

  /** The adapter of a checkpoint, read when it is used. @param base without an adapter */
  adapterOf(checkpoint: FoundCheckpoint, base: DecoderConfig): AdapterWeights {
    const config = withLora(base, checkpoint.lora);
    const lora = config.lora!;
    const read = async (): Promise<Float32Array> => {
      const folder = await this.folderOf(checkpoint);
      const store = new ParameterStore(loraSpecs(config, lora));
      const fault = await readAdapterWeights(folder, config, store).catch((error: Error) => error);
      // It may have been overwritten meanwhile: then its files are in the other folder.
      if ((await this.folderOf(checkpoint)) !== folder) return read();
      if (fault) throw fault;
      return store.flat;
    };
    return { key: checkpoint.id, lora, read };
  }

  /**
   * The folder of a sampler's checkpoint: its own, or a hidden one after it was overwritten.
   * @throws ApiError 404 if it no longer exists
   */
  async folderOf({ folder, id }: FoundCheckpoint): Promise<string> {
    for (const place of [folder, hiddenFolder(folder, id)]) {
      if ((await currentInfo(place))?.id === id) return place;
    }
    throw new ApiError(404, 'the checkpoint of this sampler was deleted, or has expired');
  }

  /** Removes overwritten checkpoints that no sampler uses. */
  async sweep(): Promise<void> {
    for (const [id, folder] of this.#superseded) {
      if (this.#isUsed(id)) continue;
      this.#superseded.delete(id);
      await rm(folder, { recursive: true, force: true }).catch(() => {});
    }
  }

  /** Reads existing checkpoints, and removes hidden folders of processes that have ended. */
  async #readAll(): Promise<void> {
    for (const model of await namesIn(this.#folder)) {
      for (const parent of Object.keys(KINDS).map(kind => join(this.#folder, model, kind))) {
        for (const name of await namesIn(parent)) {
          const folder = join(parent, name);
          const [hidden, pid, start] = HIDDEN.exec(name) ?? [];
          if (NAME.test(name)) await this.#read(folder);
          else if (hidden && !(pid && isAlive(Number(pid), start || null)))
            await rm(folder, { recursive: true, force: true }).catch(() => {});
        }
      }
    }
  }

  /** Reads the checkpoint in a folder; undefined where there is none. */
  async #read(folder: string): Promise<KnownCheckpoint | undefined> {
    const info = await readInfo(folder);
    if (info) this.#known.set(folder, { ...info, bytes: await folderBytes(folder).catch(() => 0) });
    else this.#known.delete(folder);
    return this.#known.get(folder);
  }

  /** Removes expired checkpoints of all keys; a failure does not affect the save. */
  async #removeExpired(): Promise<void> {
    for (const [folder, known] of this.#known) {
      if (isCurrent(known)) continue;
      const info = await this.#read(folder);
      if (info && !isCurrent(info)) await this.#retire(folder).catch(() => {});
    }
  }

  /**
   * @param but folder of a checkpoint that is replaced
   * @throws ApiError 400 where one of this many bytes has no room among the others of its share
   */
  async #checkRoom(share: string, but: string, bytes: number, canBeOld = true): Promise<void> {
    const others = [...this.#known].filter(([folder, info]) => folder !== but && info.share === share);
    const all = others.reduce((sum, [, info]) => sum + info.bytes, bytes);
    const isFull = others.length >= MAX_CHECKPOINTS;
    if (!isFull && all <= this.#maxBytes) return;
    if (canBeOld) {
      // Others may have removed some meanwhile; those in progress are hidden.
      for (const [folder] of others) if (NAME.test(basename(folder))) await this.#read(folder);
      return this.#checkRoom(share, but, bytes, false);
    }
    const [kind] = share.split(' ');
    if (isFull)
      throw badRequest(`this ${kind} has ${others.length} checkpoints, as many as it may: delete some`);
    const most = `${this.#maxBytes / 2 ** 20} MiB (--max-checkpoint-mb)`;
    throw badRequest(
      `with this one the checkpoints of this ${kind} would take ${Math.ceil(all / 2 ** 20)} of ${most}: delete some, or save with ttl_seconds`,
    );
  }

  /** Removes a checkpoint in one step, so no reader sees a part of it; one in use stays in a hidden folder. */
  async #retire(folder: string, isUsed = (_: string) => false): Promise<void> {
    const id = (await readInfo(folder))?.id ?? randomUUID();
    const hidden = hiddenFolder(folder, id);
    const fault = await rename(folder, hidden).catch((error: NodeJS.ErrnoException) => error);
    if (fault && fault.code !== 'ENOENT') throw fault;
    this.#known.delete(folder);
    if (fault) return;
    if (isUsed(id)) this.#superseded.set(id, hidden);
    else await rm(hidden, { recursive: true, force: true });
  }

  /** @throws ApiError 404 for an id of another form */
  #folderOf(modelId: string): string {
    const [, session, number] = MODEL_ID.exec(modelId) ?? [];
    if (session) return join(this.#folder, `${session}-train-${number}`);
    throw new ApiError(404, `there is no model ${JSON.stringify(modelId.slice(0, 200))}`);
  }
}

async function readInfo(folder: string): Promise<CheckpointInfo | null> {
  try {
    const info = JSON.parse(await readFile(join(folder, INFO_FILE), 'utf8'));
    // Something else of that name.
    const { owner, expires } = info;
    if (typeof owner !== 'string' || (expires !== null && typeof expires !== 'number')) return null;
    return { id: info.time, share: `key ${owner}`, ...info };
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

const hiddenFolder = (folder: string, id: string): string => join(folder, '..', OWN_HIDDEN + id);

const namesIn = (folder: string): Promise<string[]> => readdir(folder).catch(() => []);

async function folderBytes(folder: string): Promise<number> {
  const files = await readdir(folder, { recursive: true, withFileTypes: true });
  const sizes = files.filter(file => file.isFile()).map(file => stat(join(file.parentPath, file.name)));
  return (await Promise.all(sizes)).reduce((sum, { size }) => sum + size, 0);
}
