const GOLDEN_RATIO = 0x9e3779b9;

/**
 * One seed from several integers (0 to 2^53): any change of one of them, or of their order, gives another seed. For
 * draws that must not depend on other draws. Uses the finalizer of MurmurHash3 over each 32-bit half.
 */
export function mixSeed(...parts: readonly number[]): number {
  let hash = parts.length;
  for (const part of parts) {
    hash = mix(hash ^ (part | 0));
    hash = mix(hash ^ Math.floor(part / 2 ** 32));
  }
  return hash >>> 0;
}

function mix(value: number): number {
  let x = (value + GOLDEN_RATIO) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}

/** Constants mixed into a run's seed, so that kinds of draws differ. */
export const PURPOSE = {
  rollout: 1,
  order: 2,
  warmStart: 3,
  fill: 4,
  diagnostics: 5,
  heldBack: 6,
  demonstrations: 10,
  dynamics: 11,
  replay: 12,
  branch: 13,
  branchChoice: 14,
  branchLuck: 15,
  prefixChoice: 16,
} as const;
