import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import Type, { type Static } from 'typebox';
import { Value } from 'typebox/value';
import { isThere } from '../../models/files/model-file.ts';

/** The file in place of the weights, which the server keeps. */
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

/** Paths of checkpoints that a run's folder names, apart from those that only unfinished checkpoints name. */
export async function pathsBelow(run: string): Promise<{ inUse: Set<string>; unfinished: Set<string> }> {
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
