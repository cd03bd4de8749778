/** A model on a hub. */
export interface ModelName {
  /** `organization/name`. */
  readonly id: string;
  /** Branch, tag or commit; `main` where none is named. */
  readonly revision: string;
}

export const DEFAULT_REVISION = 'main';

const PART = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;
const REVISION = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$/;
const COMMIT = /^[0-9a-f]{40}$/;

/**
 * Reads `organization/name` or `organization/name@revision`; undefined for anything else, such as a path.
 *
 * @example
 * parseModelName('Qwen/Qwen2.5-0.5B-Instruct@main'); // { id: 'Qwen/Qwen2.5-0.5B-Instruct', revision: 'main' }
 */
export function parseModelName(text: string): ModelName | undefined {
  const at = text.indexOf('@');
  const id = at < 0 ? text : text.slice(0, at);
  const revision = at < 0 ? DEFAULT_REVISION : text.slice(at + 1);
  const parts = id.split('/');
  const fits =
    parts.length === 2 &&
    parts.every(part => PART.test(part) && !part.includes('..') && !part.includes('--')) &&
    REVISION.test(revision) &&
    !revision.includes('..');
  return fits ? { id, revision } : undefined;
}

/** The name as it is written in settings. */
export function shownModelName({ id, revision }: ModelName): string {
  return `${id}@${revision}`;
}

/** True if a revision is a commit, which never changes. */
export function isCommit(revision: string): boolean {
  return COMMIT.test(revision);
}
