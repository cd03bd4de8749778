import { existsSync, readFileSync } from 'node:fs';
import { copyFile, lstat, mkdir, symlink } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { replaceFile } from '../../shared/replace-file.ts';

const MODELS = 'models--';
const SEPARATOR = '--';

/**
 * The cache folders of a model in the layout of Python's huggingface_hub: `blobs` by hash, `refs` with the commit of
 * each branch, and `snapshots` of commits, with files that are relative links to blobs.
 */
export class ModelCache {
  readonly folder: string;
  readonly #locks: string;

  /** @param cache the folder of {@link HubSettings} */
  constructor(cache: string, id: string) {
    const name = MODELS + id.replace('/', SEPARATOR);
    this.folder = join(cache, name);
    this.#locks = join(cache, '.locks', name);
  }

  blob(etag: string): string {
    return join(this.folder, 'blobs', etag);
  }

  /** Path of a blob that is still being downloaded. */
  partial(etag: string): string {
    return `${this.blob(etag)}.ragen.incomplete`;
  }

  /** Path of the lock that a process holds while it downloads a blob. */
  lock(etag: string): string {
    return join(this.#locks, `${etag}.ragen.lock`);
  }

  snapshot(commit: string): string {
    return join(this.folder, 'snapshots', commit);
  }

  /** The last known commit of a branch, tag or commit; undefined where there is none. */
  commitOf(revision: string): string | undefined {
    if (isCommit(revision)) return revision;
    const file = join(this.folder, 'refs', revision);
    if (!existsSync(file)) return undefined;
    const commit = readFileSync(file, 'utf8').trim();
    return isCommit(commit) ? commit : undefined;
  }

  async writeRef(revision: string, commit: string): Promise<void> {
    if (isCommit(revision) || this.commitOf(revision) === commit) return;
    const file = join(this.folder, 'refs', revision);
    await mkdir(dirname(file), { recursive: true });
    await replaceFile(file, commit);
  }

  /** Adds a blob to a snapshot as a file: a relative link, or a copy where the disk has no links. */
  async link(commit: string, name: string, etag: string): Promise<void> {
    const path = join(this.snapshot(commit), name);
    const blob = this.blob(etag);
    await mkdir(dirname(path), { recursive: true });
    await replaceFile(path, async temporary => {
      try {
        await symlink(relative(dirname(path), blob), temporary);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EPERM') throw error;
        await copyFile(blob, temporary);
      }
    });
  }
}

/** True if a snapshot has a file together with its blob. */
export async function hasFile(snapshot: string, name: string): Promise<boolean> {
  const path = join(snapshot, name);
  return existsSync(path) && (await lstat(path)).size > 0;
}

/** The cached snapshot of a model, or its GGUF file; undefined where it is not cached. */
export function cachedSnapshot(cache: string, { id, revision, file = '' }: ModelName): string | undefined {
  const model = new ModelCache(cache, id);
  const commit = model.commitOf(revision);
  if (commit === undefined) return undefined;
  const folder = join(model.snapshot(commit), file);
  return existsSync(folder) ? folder : undefined;
}

/** The model and commit of a snapshot folder in any cache, or of a GGUF file in it; undefined for other folders. */
export function modelOfSnapshot(folder: string): ModelName | undefined {
  const whole = resolve(folder);
  const file = /\.gguf$/i.test(whole) ? basename(whole) : undefined;
  const path = file === undefined ? whole : dirname(whole);
  const commit = basename(path);
  const name = basename(dirname(dirname(path)));
  if (!isCommit(commit) || basename(dirname(path)) !== 'snapshots' || !name.startsWith(MODELS)) {
    return undefined;
  }
  const id = name.slice(MODELS.length).replace(SEPARATOR, '/');
  return { id, revision: commit, ...(file === undefined ? {} : { file }) };
}

/** A model on a hub. */
export interface ModelName {
  /** `organization/name`. */
  readonly id: string;
  /** Branch, tag or commit; `main` by default. */
  readonly revision: string;
  /** The requested GGUF file of the repository; absent for a model in the Hugging Face layout. */
  readonly file?: string;
}

const DEFAULT_REVISION = 'main';

const PART = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;
const REVISION = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$/;
const FILE = /^[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.gguf$/i;
const COMMIT = /^[0-9a-f]{40}$/;

/**
 * Parses `organization/name` or `organization/name@revision`, with an optional `:file.gguf` for a GGUF file; undefined
 * for anything else, such as a path.
 * @example parseModelName('Qwen/Qwen2.5-0.5B-Instruct@main'); // { id: 'Qwen/Qwen2.5-0.5B-Instruct', revision: 'main' }
 */
export function parseModelName(name: string): ModelName | undefined {
  const colon = name.indexOf(':');
  const [text, file] = colon < 0 ? [name, undefined] : [name.slice(0, colon), name.slice(colon + 1)];
  if (file !== undefined && !FILE.test(file)) return undefined;
  const at = text.indexOf('@');
  const id = at < 0 ? text : text.slice(0, at);
  const revision = at < 0 ? DEFAULT_REVISION : text.slice(at + 1);
  const parts = id.split('/');
  const fits =
    parts.length === 2 &&
    parts.every(part => PART.test(part) && !part.includes('..') && !part.includes('--')) &&
    REVISION.test(revision) &&
    !revision.includes('..');
  return fits ? { id, revision, ...(file === undefined ? {} : { file }) } : undefined;
}

/** The name in the form of settings. */
export function shownModelName(model: ModelName): string {
  const { id, revision, file } = model;
  return `${id}@${revision}${file === undefined ? '' : `:${file}`}`;
}

/** The name without its revision. */
export function plainModelName({ id, file }: ModelName): string {
  return file === undefined ? id : `${id}:${file}`;
}

/** True if a revision is a commit, which never changes. */
export function isCommit(revision: string): boolean {
  return COMMIT.test(revision);
}
