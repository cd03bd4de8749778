import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { threadId } from 'node:worker_threads';
import { suggestion } from '../../../shared/text.ts';
import { type AttributeValue, describe, type Graph, type Tensor } from '../graph/tensor.ts';

/** Kinds of dumps, with the extension of their files. */
const ENDINGS = { graph: 'txt', onnx: 'onnx', wgsl: 'wgsl', batch: 'jsonl' } as const;
export type DumpKind = keyof typeof ENDINGS;

const KINDS_VARIABLE = 'RAGEN_DUMP';
const FOLDER_VARIABLE = 'RAGEN_DUMP_DIR';
const DEFAULT_FOLDER = 'ragen-dump';
const MAX_NAME_LENGTH = 60;

let files = 0;

/**
 * The kinds that the variable `RAGEN_DUMP` names, separated by commas; none without it.
 * @throws RangeError for a word that is not a kind
 */
export function dumpKinds(): ReadonlySet<DumpKind> {
  const words = (process.env[KINDS_VARIABLE] ?? '')
    .split(',')
    .map(word => word.trim())
    .filter(word => word !== '');
  for (const word of words) {
    if (Object.hasOwn(ENDINGS, word)) continue;
    const known = Object.keys(ENDINGS);
    throw new RangeError(
      `${KINDS_VARIABLE}: \`${word}\` cannot be dumped${suggestion(word, known)}; valid: ${known.join(', ')}`,
    );
  }
  return new Set(words as DumpKind[]);
}

/** Folder of the dumps: the one that `RAGEN_DUMP_DIR` names, otherwise `ragen-dump` in the current one. */
export function dumpFolder(): string {
  return resolve(process.env[FOLDER_VARIABLE] || DEFAULT_FOLDER);
}

/**
 * Writes one file if its kind is requested. Names contain process, thread and a running number, so the files of all
 * workers sort in the order they were made.
 * @param content called only if the file is written
 * @throws Error of the file system, such as a full disk
 */
export function dump(kind: DumpKind, name: string, content: () => string | Uint8Array): void {
  if (!dumpKinds().has(kind)) return;
  const folder = dumpFolder();
  mkdirSync(folder, { recursive: true });
  const number = String(++files).padStart(4, '0');
  const safe = name.replace(/[^\w.]+/g, '-').slice(0, MAX_NAME_LENGTH);
  writeFileSync(
    join(folder, `${kind}-${process.pid}-${threadId}-${number}-${safe}.${ENDINGS[kind]}`),
    content(),
  );
}

/** Longest list of numbers that is written out. */
const MAX_LIST_LENGTH = 16;

/** A graph as text for people, a line a node in the order of computation: `%7 = mul(%3, %5) : float32[4,128]`. */
export function listGraph(graph: Graph): string {
  const names = new Map<Tensor, string>();
  for (const [name, node] of [...graph.inputs, ...graph.parameters]) names.set(node, name);
  const lines = graph.nodes.map(node => {
    const reads = names.get(node) ?? node.inputs.map(({ id }) => `%${id}`).join(', ');
    const settings = Object.entries(node.attributes)
      .filter(([key]) => !(names.has(node) && key === 'name'))
      .map(([key, value]) => ` ${key}=${shown(value)}`);
    return `%${node.id} = ${node.operation}(${reads})${settings.join('')} : ${describe(node)}`;
  });
  const outputs = [...graph.outputs].map(
    ([name, node]) => `output ${name} = %${node.id} : ${describe(node)}`,
  );
  return [...lines, ...outputs, ''].join('\n');
}

function shown(value: AttributeValue): string {
  if (typeof value !== 'object') return String(value);
  return value.length > MAX_LIST_LENGTH ? `(${value.length} numbers)` : `[${value.join(',')}]`;
}
