export function countOnes(mask: ArrayLike<number>): number {
  let ones = 0;
  for (let t = 0; t < mask.length; t++) if (mask[t]) ones++;
  return ones;
}
