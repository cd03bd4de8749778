import { constants } from 'node:fs';
import { type FileHandle, open, realpath, stat } from 'node:fs/promises';
import { basename, dirname, join, sep } from 'node:path';
import { isGgufName, textsOfGguf } from '../gguf/gguf-texts.ts';

/** Largest text file of a model, in bytes: several times the largest published `tokenizer.json`. */
const MAX_TEXT_BYTES = 256 * 2 ** 20;
/** A snapshot in a cache of huggingface_hub: its files are links to the `blobs` of the same model. */
const SNAPSHOT = /[\\/]models--[^\\/]+[\\/]snapshots[\\/][0-9a-f]{40}$/;

/** A file of a model's folder that is missing or not read; the message says why and what to do. */
export class ModelFileError extends Error {
  override readonly name = 'ModelFileError';
}

/** True if a path exists, links followed. A GGUF file counts as a folder with the files that it replaces. */
export async function isThere(path: string): Promise<boolean> {
  if (isGgufName(dirname(path)) && (await isOrdinary(dirname(path)))) {
    return (await ggufText(path)) !== undefined;
  }
  return stat(path).then(
    () => true,
    () => false,
  );
}

/**
 * Opens a file of a model's folder to read. The folder may be untrusted, so the file must be an ordinary one inside it:
 * no pipe, on which reading waits forever, no device, and no link to another place. Links of a hub's cache may lead to
 * its blobs.
 * @throws ModelFileError naming the file; Error with code ENOENT where it is missing
 */
export async function openModelFile(path: string): Promise<FileHandle> {
  const folder = await realpath(dirname(path));
  const target = await realpath(join(folder, basename(path)));
  const root = SNAPSHOT.test(folder) ? dirname(dirname(folder)) : folder;
  if (!target.startsWith(root.endsWith(sep) ? root : root + sep)) {
    throw new ModelFileError(
      `${path} is a link to ${target}, outside the model's folder: put the file itself there`,
    );
  }
  // Without O_NONBLOCK opening a pipe waits for its other end.
  const handle = await open(target, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)).catch(error => {
    throw (error as NodeJS.ErrnoException).code === 'ENXIO' ? notOrdinary(path) : error;
  });
  if ((await handle.stat()).isFile()) return handle;
  await handle.close();
  throw notOrdinary(path);
}

/**
 * The text of a file of a model's folder.
 * @throws as {@link openModelFile}; ModelFileError for a file that is too large
 */
export async function readModelText(path: string): Promise<string> {
  if (isGgufName(dirname(path)) && (await isOrdinary(dirname(path)))) {
    const text = await ggufText(path);
    if (text !== undefined) return text;
    throw Object.assign(new Error(`${dirname(path)} has no ${basename(path)}`), { code: 'ENOENT' });
  }
  await using handle = await openModelFile(path);
  const { size } = await handle.stat();
  if (size > MAX_TEXT_BYTES) {
    throw new ModelFileError(`${path} has ${size} bytes, more than the ${MAX_TEXT_BYTES} of any tokenizer`);
  }
  return await handle.readFile('utf8');
}

/** As {@link readModelText}; undefined where the file is missing. */
export async function readModelTextIfThere(path: string): Promise<string | undefined> {
  return readModelText(path).catch(error => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  });
}

function isOrdinary(path: string): Promise<boolean> {
  return stat(path).then(
    found => found.isFile(),
    () => false,
  );
}

/** A text file of a model from its GGUF file's metadata; the path's folder is the GGUF file. */
async function ggufText(path: string): Promise<string | undefined> {
  await using handle = await openModelFile(dirname(path));
  return (await textsOfGguf(handle, dirname(path)))[basename(path)];
}

function notOrdinary(path: string): ModelFileError {
  return new ModelFileError(
    `${path} is not a regular file (a pipe, folder or device): put the file itself there`,
  );
}
