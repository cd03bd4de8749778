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
