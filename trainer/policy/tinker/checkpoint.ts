import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import Type, { type Static } from 'typebox';
import { Value } from 'typebox/value';
import { isThere } from '../../models/files/model-file.ts';
import type { TinkerError, TinkerHttp } from './http.ts';

/** File in place of the weights, which the server keeps. */
export const TINKER_FILE = 'tinker.json';

/** Subfolder of a run's folder for an incomplete checkpoint. */
export const UNFINISHED = 'tinker.partial';
/** Its parts become parts of an address. */
const PATH = '^tinker:/(?:/(?!\\.{1,2}(?:/|$))[^/]+){2,}$';
const Path = Type.String({ pattern: PATH });
const Count = Type.Integer({ minimum: 0 });

/** A checkpoint at a Tinker server. */
export const TinkerCheckpoint = Type.Object({
  format: Type.Literal(1),
  /** Address of the server that wrote it. */
  url: Type.String(),
  base_model: Type.String(),
  rank: Type.Integer({ minimum: 1 }),
  /** Weights and optimizer's state at the server. */
  path: Path,
  /** Optimizer steps before it. */
  version: Count,
  /** Tokens that the run sent so far, by price. */
  tokens: Type.Object({ prefilled: Count, sampled: Count, trained: Count }),
  /** Paths that the run saved and has not deleted, the oldest first. */
  kept: Type.Array(Path),
});
export type TinkerCheckpoint = Static<typeof TinkerCheckpoint>;

export const isTinkerPath = (text: string): boolean => Value.Check(Path, text);

/**
 * The checkpoint in a folder; undefined where the folder has none, such as that of a tokenizer.
 * @throws SyntaxError for a file that is damaged
 */
export async function readTinkerCheckpoint(folder: string): Promise<TinkerCheckpoint | undefined> {
  const file = join(folder, TINKER_FILE);
  if (!(await isThere(file))) return undefined;
  const found: unknown = JSON.parse(await readFile(file, 'utf8'));
  if (Value.Check(TinkerCheckpoint, found)) return found;
  const [{ instancePath, message }] = Value.Errors(TinkerCheckpoint, found);
  throw new SyntaxError(`${file}: ${instancePath || 'the file'} ${message}`);
}

/** @throws RangeError for a checkpoint of another model than the options name */
export function checkCheckpoint(
  { base_model, rank }: TinkerCheckpoint,
  { baseModel, lora, folder }: { baseModel: string; lora: { readonly rank: number }; folder?: string },
): void {
  if (base_model !== baseModel)
    throw new RangeError(`policy.init is ${baseModel}, but ${folder} continues ${base_model}`);
  if (rank !== lora.rank)
    throw new RangeError(`policy.lora.rank is ${lora.rank}, but ${folder} has rank ${rank}`);
}

/** @param files further ones by name, those of the tokenizer */
export async function writeTinkerCheckpoint(
  folder: string,
  checkpoint: TinkerCheckpoint,
  files: { readonly [name: string]: string },
): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  await writeFile(join(folder, TINKER_FILE), `${JSON.stringify(checkpoint, null, 1)}\n`);
}

export interface KeptCheckpointsOptions {
  /** Newest checkpoints that the server keeps, besides those in use. */
  readonly keepCheckpoints: number;
  /** Folder of the run: checkpoints that it names stay at the server. */
  readonly run?: string;
  readonly note: (text: string) => void;
}

/** The checkpoints of a run that are at the server, and are deleted there when nothing needs them any more. */
export class KeptCheckpoints {
  /** Their paths, the oldest first. */
  paths: string[];
  readonly #http: TinkerHttp;
  readonly #options: KeptCheckpointsOptions;
  /** Number of the first paths, which belong to checkpoints that were never finished. */
  #unfinished: number;

  private constructor(
    http: TinkerHttp,
    options: KeptCheckpointsOptions,
    unfinished: string[],
    kept: readonly string[],
  ) {
    this.#http = http;
    this.#options = options;
    this.#unfinished = unfinished.length;
    this.paths = [...unfinished, ...kept];
  }

  /**
   * @param kept of the checkpoint that the run continues from; checkpoints that only its unfinished ones name are
   * deleted next
   */
  static async open(http: TinkerHttp, options: KeptCheckpointsOptions, kept: readonly string[] = []) {
    const named = options.run === undefined ? [] : [...(await pathsBelow(options.run)).unfinished];
    const unfinished = named.filter(path => !kept.includes(path));
    return new KeptCheckpoints(http, options, unfinished, kept);
  }

  /** Deletes checkpoints beyond the kept number, except one and those that the run's folder names. */
  async deleteOlder(except: string): Promise<void> {
    const { keepCheckpoints, run } = this.#options;
    const count = Math.max(this.#unfinished, this.paths.length - keepCheckpoints);
    const older = this.paths.slice(0, count).filter(path => path !== except);
    this.#unfinished = 0;
    const inUse = run !== undefined && older.length > 0 ? (await pathsBelow(run)).inUse : new Set();
    for (const path of older) if (!inUse.has(path)) await this.#delete(path);
  }

  async #delete(path: string): Promise<void> {
    try {
      const [model, ...name] = path.split('/').slice(2).map(encodeURIComponent);
      await this.#http.json('DELETE', `training_runs/${model}/checkpoints/${name.join('/')}`);
    } catch (error) {
      const { status, message } = error as TinkerError;
      if (status !== 404 && status !== 410) return this.#options.note(`${path} was not deleted: ${message}`);
    }
    this.paths = this.paths.filter(kept => kept !== path);
  }
}

/** Paths of checkpoints that a run's folder names, apart from those that only unfinished checkpoints name. */
async function pathsBelow(run: string): Promise<{ inUse: Set<string>; unfinished: Set<string> }> {
  const paths = { inUse: new Set<string>(), unfinished: new Set<string>() };
  for (const name of await readdir(run, { recursive: true })) {
    if (!name.endsWith(TINKER_FILE)) continue;
    const isUnfinished = name.split(sep).some(part => part.endsWith('.partial'));
    const found = await readTinkerCheckpoint(dirname(join(run, name))).catch(error => {
      if (!isUnfinished) throw error;
    });
    if (!found) continue;
    if (!isUnfinished) paths.inUse.add(found.path);
    else for (const path of [...found.kept, found.path]) paths.unfinished.add(path);
  }
  return paths;
}
