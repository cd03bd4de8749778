import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import Type, { type Static } from 'typebox';
import { Value } from 'typebox/value';
import { isThere } from '../../models/files/model-file.ts';
import type { TinkerError, TinkerHttp } from './http.ts';

/** File in place of the weights, which the server keeps. */
export const TINKER_FILE = 'tinker.json';

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

/**
 * Deletes the older checkpoints of a run at the server, except those that the run's folder names.
 * @param paths of all that the run saved, the oldest first
 * @returns those that remain
 */
export async function deleteOlder(
  http: TinkerHttp,
  paths: readonly string[],
  { keepCheckpoints, run, note }: KeptCheckpointsOptions,
): Promise<string[]> {
  const kept = paths.slice(-keepCheckpoints);
  const older = paths.slice(0, -keepCheckpoints);
  const inUse = run !== undefined && older.length > 0 ? await pathsBelow(run) : new Set<string>();
  const remains: string[] = [];
  for (const path of older) {
    if (inUse.has(path)) remains.push(path);
    else {
      const [model, ...name] = path.split('/').slice(2).map(encodeURIComponent);
      const route = `training_runs/${model}/checkpoints/${name.join('/')}`;
      await http.json('DELETE', route).catch(({ status, message }: TinkerError) => {
        if (status === 404 || status === 410) return;
        remains.push(path);
        note(`${path} was not deleted: ${message}`);
      });
    }
  }
  return [...remains, ...kept];
}

/** Paths of checkpoints that a run's folder names; torn files of a run that was killed name none. */
async function pathsBelow(run: string): Promise<Set<string>> {
  const paths = new Set<string>();
  for (const name of await readdir(run, { recursive: true })) {
    if (!name.endsWith(TINKER_FILE)) continue;
    const found = await readTinkerCheckpoint(dirname(join(run, name))).catch(error => {
      if (!(error instanceof SyntaxError)) throw error;
    });
    if (found) paths.add(found.path);
  }
  return paths;
}
