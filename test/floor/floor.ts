/** Share of lines, in percent with one decimal, by folder. */
export type Floor = { readonly [folder: string]: number };

/** A file's entry in the json-summary of istanbul. */
export interface FileCoverage {
  readonly lines: { readonly total: number; readonly covered: number };
}

/** The share of lines of each folder that ran, of the files that were loaded, in percent, rounded down to a tenth. */
export function folderCoverage(
  summary: { readonly [file: string]: FileCoverage },
  root: string,
  folders: readonly string[],
): Floor {
  const shares: { [folder: string]: number } = {};
  for (const folder of folders) {
    let [total, covered] = [0, 0];
    for (const [file, { lines }] of Object.entries(summary)) {
      if (!file.startsWith(`${root}/${folder}/`)) continue;
      total += lines.total;
      covered += lines.covered;
    }
    if (total > 0) shares[folder] = Math.floor((1000 * covered) / total) / 10;
  }
  return shares;
}

/** Lines to print, the floor raised for folders above it, and whether a folder is below it. */
export function compareWithFloor(
  measured: Floor,
  floor: Floor,
): { readonly lines: readonly string[]; readonly raised: Floor; readonly failed: boolean } {
  const lines: string[] = [];
  const raised: { [folder: string]: number } = { ...floor };
  let failed = false;
  for (const [folder, share] of Object.entries(measured)) {
    const least = floor[folder] ?? 0;
    const verdict =
      share < least
        ? `below its floor of ${least} %`
        : share > least
          ? `floor was ${least} %`
          : 'at its floor';
    lines.push(`${folder}: ${share} % of lines, ${verdict}`);
    failed ||= share < least;
    raised[folder] = Math.max(share, least);
  }
  const sorted = Object.entries(raised).sort(([a], [b]) => (a < b ? -1 : 1));
  return { lines, raised: Object.fromEntries(sorted), failed };
}
