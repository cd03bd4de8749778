import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join, matchesGlob, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Reads Dockerfiles and does with files what they do, as far as that goes without Docker. */

export const ROOT = fileURLToPath(new URL('../', import.meta.url));

export const IMAGES = ['env-server', 'trainer'] as const;
export type ImageName = (typeof IMAGES)[number];

export interface Instruction {
  readonly name: string;
  readonly text: string;
}

/** The image that both are made from: `ARG NODE_IMAGE` before the first stage. */
export function baseOf(image: ImageName): string {
  const text = readFileSync(`${ROOT}docker/${image}.Dockerfile`, 'utf8');
  const [, base] = /^ARG NODE_IMAGE=(\S+)$/m.exec(text) ?? [];
  if (base === undefined) throw new Error(`${image}: names no base`);
  return base;
}

/** The stages of an image, each a list of instructions that begins with FROM. */
export function stagesOf(image: ImageName): Instruction[][] {
  const text = readFileSync(`${ROOT}docker/${image}.Dockerfile`, 'utf8')
    .replaceAll(/^#.*\n/gm, '')
    .replaceAll(/\\\n/g, ' ');
  const stages: Instruction[][] = [];
  for (const line of text.split('\n').filter(line => line.trim() !== '')) {
    const [, name, rest] = /^([A-Z]+)\s+(.*)$/.exec(line) ?? [];
    if (name === undefined) throw new Error(`${image}: not an instruction: ${line}`);
    if (name === 'ARG' && stages.length === 0) continue;
    if (name === 'FROM') stages.push([]);
    stages.at(-1)!.push({ name, text: rest.trim() });
  }
  return stages;
}

/** The instructions of the image itself: those of its last stage. */
export const lastStage = (image: ImageName): Instruction[] => stagesOf(image).at(-1)!;

/** Texts of the instructions with a name, in their order. */
export const said = (stage: readonly Instruction[], name: string): string[] =>
  stage.filter(instruction => instruction.name === name).map(({ text }) => text);

/** Copies from the repository, not from another stage: sources and target. */
export function copies(
  stage: readonly Instruction[],
): { readonly sources: string[]; readonly target: string }[] {
  return said(stage, 'COPY')
    .filter(text => !text.startsWith('--from'))
    .map(text => {
      const parts = text.split(/\s+/);
      return { sources: parts.slice(0, -1), target: parts.at(-1)! };
    });
}

/** The environment variables an image sets. */
export function variablesOf(image: ImageName): { [name: string]: string } {
  const pairs = said(lastStage(image), 'ENV').flatMap(text => text.split(/\s+/));
  return Object.fromEntries(pairs.map(pair => pair.split('=')));
}

interface Rule {
  readonly pattern: string;
  readonly kept: boolean;
}

function rules(): Rule[] {
  return readFileSync(`${ROOT}.dockerignore`, 'utf8')
    .split('\n')
    .filter(line => line.trim() !== '' && !line.startsWith('#'))
    .map(line =>
      line.startsWith('!') ? { pattern: line.slice(1), kept: true } : { pattern: line, kept: false },
    );
}

/** True if .dockerignore excludes a path of the repository. The last rule that fits it or a folder above decides. */
export function isIgnored(path: string): boolean {
  const above = path.split('/').map((_, i, parts) => parts.slice(0, i + 1).join('/'));
  let ignored = false;
  for (const { pattern, kept } of rules()) {
    if (above.some(part => matchesGlob(plain(part), plain(pattern)))) ignored = !kept;
  }
  return ignored;
}

/** Docker's stars match file names that begin with a dot; those of Node.js do not. */
const plain = (path: string): string => path.replaceAll(/(^|\/)\./g, '$1_');

/** Makes a folder that holds what the image's `/app` would, with the packages of this machine. */
export function assemble(image: ImageName, folder: string): void {
  for (const { sources, target } of copies(lastStage(image))) {
    for (const source of sources) {
      const place = target.endsWith('/')
        ? join(folder, target, source.split('/').at(-1)!)
        : join(folder, target);
      mkdirSync(dirname(place), { recursive: true });
      cpSync(`${ROOT}${source}`, place, {
        recursive: true,
        filter: from => !isIgnored(relative(ROOT, from)),
      });
    }
  }
  cpSync(`${ROOT}package.json`, join(folder, 'package.json'));
  symlinkSync(`${ROOT}node_modules`, join(folder, 'node_modules'));
}

export const exists = (path: string): boolean => existsSync(`${ROOT}${path}`);
