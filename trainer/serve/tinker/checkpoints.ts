import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import { withLora } from '../../models/adapters/peft.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { loraSpecs } from '../../models/parameters.ts';
import { readAdapterConfig, readAdapterWeights } from '../../policy/checkpoint/adapter-folder.ts';
import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import { ApiError, badRequest } from '../openai/errors.ts';
import type { AdapterWeights } from './samplers.ts';

const INFO_FILE = 'tinker.json';
/** Name of a checkpoint: one part of a path, which no file system reads as something else. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const MODEL_ID = /^([0-9a-f-]{36}):train:(\d{1,9})$/;
/** Kinds of checkpoints in paths and in lists. */
const KINDS = { weights: 'training', sampler_weights: 'sampler' } as const;

export type CheckpointKind = keyof typeof KINDS;

/** Facts of a checkpoint besides its adapter, in `tinker.json`. */
interface CheckpointInfo {
  /** Differs between checkpoints that had the same name one after the other. */
  readonly id: string;
  readonly base_model: string;
  /** Hash of the key that wrote it: with another key it is not found. */
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

export interface NewCheckpoint {
  readonly kind: CheckpointKind;
  readonly name: string;
  readonly owner: string;
  readonly baseModel: string;
  readonly ttlSeconds?: number | null;
  readonly overwrite?: boolean | null;
}

/**
 * Named checkpoints in a folder: `<session>-train-<n>/weights/<name>/` holds the adapter in PEFT's layout with its optimizer,
 * `…/sampler_weights/<name>/` the adapter alone. Each appears whole or not at all.
 */
export class Checkpoints {
  readonly #folder: string;
  readonly #isUsed: (id: string) => boolean;
  /** Folders of checkpoints that were overwritten while a sampler used them, by id. */
  readonly #superseded = new Map<string, string>();

  /** @param isUsed true for the id of a checkpoint that a sampler uses: it is kept when it is overwritten */
  constructor(folder: string, isUsed: (id: string) => boolean) {
    this.#folder = folder;
    this.#isUsed = isUsed;
  }

  /**
   * Writes a checkpoint.
   * @param write fills a folder
   * @returns its `tinker://` path
   * @throws ApiError 400 for a name that is no plain file name, or that is taken and not to be replaced
   */
  async save(
    modelId: string,
    { kind, name, owner, baseModel, ttlSeconds, overwrite }: NewCheckpoint,
    write: (folder: string) => Promise<void>,
  ): Promise<string> {
    if (!NAME.test(name)) {
      const rule = 'use 1 to 128 letters, digits, "-", "_" and ".", beginning with a letter or digit';
      throw badRequest(
        `the checkpoint name ${JSON.stringify(name.slice(0, 200))} is not valid: ${rule}`,
        'path',
      );
    }
    const path = `tinker://${modelId}/${kind}/${name}`;
    const parent = this.#folderOf(modelId, kind);
    const folder = join(parent, name);
    if ((await currentInfo(folder)) && !overwrite) {
      throw badRequest(`${path} exists: choose another name, or set overwrite`, 'path');
    }
    await this.#removeExpired(parent);
    const id = randomUUID();
    const temporary = join(parent, `.${id}`);
    await mkdir(temporary, { recursive: true });
    try {
      await write(temporary);
      const time = new Date().toISOString();
      const expires = ttlSeconds ? Date.now() + ttlSeconds * 1000 : null;
      const info: CheckpointInfo = { id, base_model: baseModel, owner, time, expires };
      await writeFile(join(temporary, INFO_FILE), `${JSON.stringify(info, null, 2)}\n`);
      await this.#retire(folder, this.#isUsed);
      await rename(temporary, folder);
    } catch (error) {
      await rm(temporary, { recursive: true, force: true });
      throw error;
    }
    return path;
  }

  /** @throws ApiError 404 where the path names no checkpoint of this owner */
  async find(path: string, owner: string): Promise<FoundCheckpoint> {
    const parts = path.split('/');
    const [scheme, , modelId, kind, name] = parts;
    if (parts.length === 5 && scheme === 'tinker:' && Object.hasOwn(KINDS, kind) && NAME.test(name)) {
      const folder = join(this.#folderOf(modelId, kind as CheckpointKind), name);
      const info = await currentInfo(folder);
      if (info?.owner === owner) return { ...info, folder, lora: (await readAdapterConfig(folder)).lora };
    }
    throw new ApiError(404, `there is no checkpoint ${JSON.stringify(path.slice(0, 300))}`);
  }

  /** The checkpoints of a model that belong to an owner. */
  async list(modelId: string, owner: string): Promise<object[]> {
    const entries: object[] = [];
    for (const [kind, checkpoint_type] of Object.entries(KINDS)) {
      const parent = this.#folderOf(modelId, kind as CheckpointKind);
      for (const name of await namesIn(parent)) {
        const info = await currentInfo(join(parent, name));
        if (info?.owner !== owner) continue;
        const size_bytes = await folderBytes(join(parent, name));
        const checkpoint_id = `${kind}/${name}`;
        const tinker_path = `tinker://${modelId}/${checkpoint_id}`;
        entries.push({ checkpoint_id, checkpoint_type, time: info.time, tinker_path, size_bytes });
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
      const [folder] = await this.foldersOf(checkpoint);
      const store = new ParameterStore(loraSpecs(config, lora));
      const fault = await readAdapterWeights(folder, config, store).catch((error: Error) => error);
      // It may have been overwritten meanwhile: then its files are in another folder.
      if (!(await this.foldersOf(checkpoint)).includes(folder)) return read();
      if (fault) throw fault;
      return store.flat;
    };
    return { key: checkpoint.id, lora, read };
  }

  /** Folders that a sampler's checkpoint is in: its own, or another where it was overwritten. @throws ApiError 404 where it is gone */
  async foldersOf({ folder, id }: FoundCheckpoint): Promise<string[]> {
    const places = [folder, hiddenFolder(folder, id)];
    const infos = await Promise.all(places.map(currentInfo));
    const found = places.filter((_, i) => infos[i]?.id === id);
    if (found.length > 0) return found;
    throw new ApiError(404, 'the checkpoint of this sampler was deleted, or has expired');
  }

  /** Removes overwritten checkpoints that no sampler uses any more. */
  async sweep(): Promise<void> {
    for (const [id, folder] of this.#superseded) {
      if (this.#isUsed(id)) continue;
      this.#superseded.delete(id);
      await rm(folder, { recursive: true, force: true }).catch(() => {});
    }
  }

  /** Takes a checkpoint away, so that no reader sees a part of it; one that is used stays in a hidden folder. */
  async #retire(folder: string, isUsed = (_: string) => false): Promise<void> {
    const id = (await readInfo(folder))?.id ?? randomUUID();
    const hidden = hiddenFolder(folder, id);
    const moved = await rename(folder, hidden).catch((error: NodeJS.ErrnoException) => error);
    if (!moved && isUsed(id)) this.#superseded.set(id, hidden);
    else if (!moved) await rm(hidden, { recursive: true, force: true });
    else if (moved.code !== 'ENOENT') throw moved;
  }

  /** Expired checkpoints take room until the same model saves another one. */
  async #removeExpired(parent: string): Promise<void> {
    for (const folder of (await namesIn(parent)).map(name => join(parent, name))) {
      if ((await readInfo(folder)) && !(await currentInfo(folder))) await this.#retire(folder);
    }
  }

  /** @throws ApiError 404 for an id of another form */
  #folderOf(modelId: string, kind: CheckpointKind): string {
    const [, session, number] = MODEL_ID.exec(modelId) ?? [];
    if (session) return join(this.#folder, `${session}-train-${number}`, kind);
    throw new ApiError(404, `there is no model ${JSON.stringify(modelId.slice(0, 200))}`);
  }
}

async function readInfo(folder: string): Promise<CheckpointInfo | null> {
  try {
    const info = JSON.parse(await readFile(join(folder, INFO_FILE), 'utf8'));
    return { id: info.time, ...info };
  } catch {
    return null;
  }
}

/** Null where there is no checkpoint, or an expired one. */
async function currentInfo(folder: string): Promise<CheckpointInfo | null> {
  const info = await readInfo(folder);
  return info && (info.expires === null || info.expires >= Date.now()) ? info : null;
}

/** The folder that a checkpoint is moved to when it is overwritten while a sampler uses it. */
const hiddenFolder = (folder: string, id: string): string => join(folder, '..', `.${id}`);

async function namesIn(parent: string): Promise<string[]> {
  return (await readdir(parent).catch(() => [])).filter(name => NAME.test(name)).sort();
}

async function folderBytes(folder: string): Promise<number> {
  const files = await readdir(folder, { recursive: true, withFileTypes: true });
  const sizes = files.filter(file => file.isFile()).map(file => stat(join(file.parentPath, file.name)));
  return (await Promise.all(sizes)).reduce((sum, { size }) => sum + size, 0);
}
