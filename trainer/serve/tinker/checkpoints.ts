import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import { readAdapterConfig } from '../../policy/checkpoint/adapter-folder.ts';
import type { CheckpointEntry } from '../../tinker/wire.ts';
import { ApiError, badRequest } from '../openai/errors.ts';

const INFO_FILE = 'tinker.json';
/** Name of a checkpoint: one part of a path, which no file system reads as something else. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const PATH =
  /^tinker:\/\/([0-9a-f-]{36}):train:(\d{1,9})\/(weights|sampler_weights)\/([A-Za-z0-9][A-Za-z0-9._-]{0,127})$/;

export type CheckpointKind = 'weights' | 'sampler_weights';

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
  readonly kind: CheckpointKind;
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
  /** Folders of checkpoints that were overwritten while a sampler used them, by id. */
  readonly #superseded = new Map<string, string>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** @throws ApiError 400 for a name that is no plain file name */
  checkName(name: string): void {
    if (NAME.test(name)) return;
    throw badRequest(
      `the checkpoint name ${JSON.stringify(name.slice(0, 200))} is not valid: use 1 to 128 letters, digits, "-", "_" and ".", beginning with a letter or digit`,
      'path',
    );
  }

  /**
   * Writes a checkpoint.
   * @param write fills a folder
   * @param isUsed true for the id of a checkpoint that a sampler uses: it is kept when it is overwritten
   * @returns its `tinker://` path
   * @throws ApiError 400 where there is one of this name and it is not to be replaced
   */
  async save(
    modelId: string,
    checkpoint: NewCheckpoint,
    write: (folder: string) => Promise<void>,
    isUsed: (id: string) => boolean,
  ): Promise<string> {
    const { kind, name, owner, baseModel, ttlSeconds, overwrite } = checkpoint;
    this.checkName(name);
    const path = `tinker://${modelId}/${kind}/${name}`;
    const parent = join(this.#folder, folderName(modelId), kind);
    const folder = join(parent, name);
    const exists = await this.#info(folder);
    if (exists && !isExpired(exists) && !overwrite) {
      throw badRequest(`${path} exists: choose another name, or set overwrite`, 'path');
    }
    await this.#removeExpired(parent);
    const id = randomUUID();
    const temporary = join(parent, `.${id}`);
    await mkdir(temporary, { recursive: true });
    try {
      await write(temporary);
      const info: CheckpointInfo = {
        id,
        base_model: baseModel,
        owner,
        time: new Date().toISOString(),
        expires: ttlSeconds ? Date.now() + ttlSeconds * 1000 : null,
      };
      await writeFile(join(temporary, INFO_FILE), `${JSON.stringify(info, null, 2)}\n`);
      const old = await this.#info(folder);
      if (old && isUsed(old.id)) {
        await rename(folder, hiddenFolder(folder, old.id));
        this.#superseded.set(old.id, hiddenFolder(folder, old.id));
      } else await this.#remove(folder);
      await rename(temporary, folder);
    } catch (error) {
      await rm(temporary, { recursive: true, force: true });
      throw error;
    }
    return path;
  }

  /** @throws ApiError 404 where the path names no checkpoint of this owner */
  async find(path: string, owner: string): Promise<FoundCheckpoint> {
    const parts = PATH.exec(path);
    if (parts !== null) {
      const [, session, number, kind, name] = parts;
      const folder = join(this.#folder, folderName(`${session}:train:${number}`), kind, name);
      const info = await this.#info(folder);
      if (info && !isExpired(info) && info.owner === owner) {
        const { lora } = await readAdapterConfig(folder);
        return { ...info, folder, kind: kind as CheckpointKind, lora };
      }
    }
    throw new ApiError(404, `there is no checkpoint ${JSON.stringify(path.slice(0, 300))}`);
  }

  /** Folders with a checkpoint's files: its own, and the one it is moved to when it is overwritten; none when it is gone. */
  async foldersOf({ folder, id }: FoundCheckpoint): Promise<string[]> {
    const places = [folder, hiddenFolder(folder, id)];
    const found = await Promise.all(places.map(place => this.#info(place)));
    return places.filter((_, i) => found[i]?.id === id && !isExpired(found[i]));
  }

  /** Removes overwritten checkpoints that no sampler uses any more. */
  async sweep(isUsed: (id: string) => boolean): Promise<void> {
    for (const [id, folder] of this.#superseded) {
      if (isUsed(id)) continue;
      this.#superseded.delete(id);
      await rm(folder, { recursive: true, force: true });
    }
  }

  /** The checkpoints of a model that belong to an owner. */
  async list(modelId: string, owner: string): Promise<CheckpointEntry[]> {
    const entries: CheckpointEntry[] = [];
    for (const kind of ['weights', 'sampler_weights'] as const) {
      const parent = join(this.#folder, folderName(modelId), kind);
      for (const name of (await readdir(parent).catch(() => [])).sort()) {
        const info = await this.#info(join(parent, name));
        if (!info || isExpired(info) || info.owner !== owner) continue;
        entries.push({
          checkpoint_id: `${kind}/${name}`,
          checkpoint_type: kind === 'weights' ? 'training' : 'sampler',
          time: info.time,
          tinker_path: `tinker://${modelId}/${kind}/${name}`,
          size_bytes: await folderBytes(join(parent, name)),
        });
      }
    }
    return entries;
  }

  /** @throws ApiError 404 where the path names no checkpoint of this owner */
  async delete(path: string, owner: string): Promise<void> {
    await this.#remove((await this.find(path, owner)).folder);
  }

  /** Expired checkpoints take room until the same model saves another one. */
  async #removeExpired(parent: string): Promise<void> {
    for (const name of (await readdir(parent).catch(() => [])).filter(one => NAME.test(one))) {
      const info = await this.#info(join(parent, name));
      if (info && isExpired(info)) await this.#remove(join(parent, name));
    }
  }

  /** Removes a folder so that no reader sees a part of it. */
  async #remove(folder: string): Promise<void> {
    const hidden = join(folder, '..', `.${randomUUID()}`);
    const moved = await rename(folder, hidden).then(
      () => true,
      () => false,
    );
    if (moved) await rm(hidden, { recursive: true, force: true });
  }

  async #info(folder: string): Promise<CheckpointInfo | null> {
    try {
      const info = JSON.parse(await readFile(join(folder, INFO_FILE), 'utf8'));
      return { id: info.time, ...info };
    } catch {
      return null;
    }
  }
}

/** The folder that a checkpoint is moved to when it is overwritten while a sampler uses it. */
const hiddenFolder = (folder: string, id: string): string => join(folder, '..', `.${id}`);

const isExpired = ({ expires }: CheckpointInfo): boolean => expires !== null && expires < Date.now();

/** @throws ApiError 404 for an id of another form */
function folderName(modelId: string): string {
  const parts = /^([0-9a-f-]{36}):train:(\d{1,9})$/.exec(modelId);
  if (parts === null) throw new ApiError(404, `there is no model ${JSON.stringify(modelId.slice(0, 200))}`);
  return `${parts[1]}-train-${parts[2]}`;
}

async function folderBytes(folder: string): Promise<number> {
  const files = await readdir(folder, { recursive: true, withFileTypes: true });
  const sizes = files.filter(file => file.isFile()).map(file => stat(join(file.parentPath, file.name)));
  return (await Promise.all(sizes)).reduce((sum, { size }) => sum + size, 0);
}
