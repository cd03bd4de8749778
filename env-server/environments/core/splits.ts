import { Type } from '../../../shared/schema/type.ts';

export const SPLITS = ['any', 'train', 'validation', 'test'] as const;
export type Split = (typeof SPLITS)[number];

/** One level in ten is for validation and one for tests. */
const BUCKETS = 10;
const VALIDATION_BUCKET = 0;
const TEST_BUCKET = 1;

/** The configuration key of environments that generate their levels. */
export const splitSchema = Type.Union(
  SPLITS.map(split => Type.Literal(split)),
  {
    default: 'any',
    description:
      'Draws only levels of this part: every level belongs to train (8 of 10), validation or test by a hash of what makes it the same, mirror images included, so the parts never overlap.',
  },
);

export const SPLIT_PRESETS = {
  train: { split: 'train' },
  validation: { split: 'validation' },
  test: { split: 'test' },
} as const;

/** The part a level belongs to, by its text: the same on every machine. */
export function splitOf(level: string): Exclude<Split, 'any'> {
  const bucket = fnv1a(level) % BUCKETS;
  if (bucket === VALIDATION_BUCKET) return 'validation';
  return bucket === TEST_BUCKET ? 'test' : 'train';
}

/** True if a level may be drawn for a split. */
export function isInSplit(level: string, split: Split): boolean {
  return split === 'any' || splitOf(level) === split;
}

/** FNV-1a over UTF-16 units with a final mix, 32 bits. */
function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
