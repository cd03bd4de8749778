import type { FileHandle } from 'node:fs/promises';
import { configOf } from './architectures.ts';
import { readGgufHeader } from './gguf-file.ts';
import { tokenizerFilesOf } from './gguf-tokenizer.ts';
import { readRopeFactors } from './gguf-weights.ts';

type Texts = { readonly [name: string]: string };

/** The file that was read last, which is asked for one text after the other. */
let last: { readonly key: string; readonly texts: Promise<Texts> } | null = null;

/** True if a path is named as GGUF files are. */
export function isGgufName(path: string): boolean {
  return path.toLowerCase().endsWith('.gguf');
}

/**
 * The text files that a model's folder in the Hugging Face layout would have: `config.json` and those of its tokenizer.
 * @throws GgufError for a file that is broken or not supported
 */
export async function textsOfGguf(handle: FileHandle, path: string): Promise<Texts> {
  const { dev, ino, size, mtimeMs } = await handle.stat();
  const key = [path, dev, ino, size, mtimeMs].join(':');
  if (last?.key !== key) last = { key, texts: readTexts(handle, path) };
  const { texts } = last;
  // The next one to ask tries again.
  texts.catch(() => (last = null));
  return texts;
}

async function readTexts(handle: FileHandle, path: string): Promise<Texts> {
  const header = await readGgufHeader(handle, path);
  const config = configOf(header, await readRopeFactors(handle, header));
  return { 'config.json': `${JSON.stringify(config, null, 2)}\n`, ...tokenizerFilesOf(header) };
}
