/** Ranks from 1; equal values share the mean of theirs. */
export function ranks(values: readonly number[]): number[] {
  const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b]);
  const out = new Array<number>(values.length);
  for (let begin = 0; begin < order.length; ) {
    let end = begin;
    while (end + 1 < order.length && values[order[end + 1]] === values[order[begin]]) end++;
    for (let i = begin; i <= end; i++) out[order[i]] = (begin + end) / 2 + 1;
    begin = end + 1;
  }
  return out;
}

/**
 * Spearman's rank correlation, −1 to 1; NaN where one of the lists is constant.
 * @throws RangeError unless both have as many values, at least two
 */
export function spearman(a: readonly number[], b: readonly number[]): number {
  if (a.length !== b.length || a.length < 2)
    throw new RangeError(
      `a rank correlation takes two lists of one length from 2, got ${a.length} and ${b.length}`,
    );
  const [x, y] = [ranks(a), ranks(b)];
  const center = (a.length + 1) / 2;
  let [product, xx, yy] = [0, 0, 0];
  for (let i = 0; i < x.length; i++) {
    product += (x[i] - center) * (y[i] - center);
    xx += (x[i] - center) ** 2;
    yy += (y[i] - center) ** 2;
  }
  return xx === 0 || yy === 0 ? Number.NaN : product / Math.sqrt(xx * yy);
}
