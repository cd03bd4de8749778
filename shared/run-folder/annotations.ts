import { isObject } from '../json.ts';

/** Tags and notes of people about a run, in `annotations.json` of its folder. */
export interface Annotations {
  readonly tags: readonly string[];
  readonly note: string;
  /** Archived runs are hidden from tables by default. */
  readonly archived: boolean;
}

export const NO_ANNOTATIONS: Annotations = { tags: [], note: '', archived: false };
const MAX_TAGS = 16;
const MAX_TAG_LENGTH = 40;
export const MAX_NOTE_LENGTH = 2000;
/** Largest request or file in bytes. */
export const MAX_ANNOTATIONS_BYTES = 16 * 1024;

/** Tags are search words, so they contain no spaces. */
const TAG = /^[^\s,]+$/;

/** The fault of a value that should be annotations; undefined when it is valid. */
export function annotationsProblem(value: unknown): string | undefined {
  if (!isObject(value)) return 'the body must be a JSON object';
  const { tags, note, archived, ...others } = value as { readonly [key: string]: unknown };
  const [unknown] = Object.keys(others);
  if (unknown !== undefined)
    return `\`${unknown.slice(0, 100)}\`: unknown key; known here: tags, note, archived`;
  if (!Array.isArray(tags) || tags.length > MAX_TAGS)
    return `\`tags\` must be a list of at most ${MAX_TAGS} tags`;
  if (!tags.every(tag => typeof tag === 'string' && tag.length <= MAX_TAG_LENGTH && TAG.test(tag)))
    return `\`tags\`: each must be text of 1 to ${MAX_TAG_LENGTH} characters without spaces and commas`;
  if (new Set(tags).size < tags.length) return '`tags` has one of them twice';
  if (typeof note !== 'string' || note.length > MAX_NOTE_LENGTH)
    return `\`note\` must be text of at most ${MAX_NOTE_LENGTH} characters`;
  return typeof archived === 'boolean' ? undefined : '`archived` must be true or false';
}
