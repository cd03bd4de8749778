/** Likeness of texts as in rapidfuzz's `token_set_ratio`, which WebShop's reward is built on. */

/**
 * From 0 to 100: how alike two texts are as sets of words. 100 when the words of one are all among the other's.
 */
export function tokenSetRatio(a: string, b: string): number {
  const [first, second] = [words(a), words(b)];
  if (first.size === 0 || second.size === 0) return 0;
  const common = sorted([...first].filter(word => second.has(word)));
  const onlyFirst = sorted([...first].filter(word => !second.has(word)));
  const onlySecond = sorted([...second].filter(word => !first.has(word)));
  if (common !== '' && (onlyFirst === '' || onlySecond === '')) return 100;
  const join = (rest: string) => [common, rest].filter(Boolean).join(' ');
  const ratios = [ratio(join(onlyFirst), join(onlySecond))];
  if (common !== '') ratios.push(ratio(common, join(onlyFirst)), ratio(common, join(onlySecond)));
  return Math.round(Math.max(...ratios));
}

function words(text: string): Set<string> {
  return new Set(text.toLowerCase().match(/[\p{L}\p{N}]+/gu));
}

function sorted(list: string[]): string {
  return list.sort().join(' ');
}

/** 100 · 2 · (longest common subsequence) / (both lengths). */
function ratio(a: string, b: string): number {
  let row = new Array<number>(b.length + 1).fill(0);
  for (let i = 0; i < a.length; i++) {
    const next = [0];
    for (let j = 0; j < b.length; j++) {
      next.push(a[i] === b[j] ? row[j] + 1 : Math.max(row[j + 1], next[j]));
    }
    row = next;
  }
  return (200 * row[b.length]) / (a.length + b.length);
}
