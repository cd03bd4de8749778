export function countOnes(lossMask: ArrayLike<number>): number {
  let ones = 0;
  for (let t = 0; t < lossMask.length; t++) if (lossMask[t]) ones++;
  return ones;
}
