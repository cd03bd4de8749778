const GAP = '  ';

/** Layout of a table. */
export interface TableLayout {
  /** Width of the terminal; unlimited when absent. */
  readonly columns?: number;
  /** Leading columns that name a row: each part of a table that is too wide begins with them. 1 unless given. */
  readonly keys?: number;
  /** Cells after the first are right-aligned. */
  readonly numbers?: boolean;
  /** Draws a line under the titles. */
  readonly ruled?: boolean;
}

/**
 * A table of plain text. If it is wider than the terminal, its columns are split into parts, one below the other; row
 * names that would fill the width lose their beginning.
 */
export function textTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  { columns = Number.POSITIVE_INFINITY, keys = 1, numbers = false, ruled = false }: TableLayout = {},
): string {
  const longestKey = Math.max(8, Math.floor(columns / (keys + 1)));
  const body = rows.map(row => row.map((cell, i) => (i < keys ? withoutBeginning(cell, longestKey) : cell)));
  const widths = head.map((title, i) => Math.max(title.length, ...body.map(row => row[i].length)));
  const line = (cells: readonly string[], shown: readonly number[]) =>
    shown
      .map((i, place) => (numbers && place > 0 ? cells[i].padStart(widths[i]) : cells[i].padEnd(widths[i])))
      .join(GAP)
      .trimEnd();
  const rule = ruled ? [widths.map(width => '-'.repeat(width))] : [];
  return parts(widths, keys, columns)
    .map(shown => [head, ...rule, ...body].map(row => line(row, shown)).join('\n'))
    .join('\n\n');
}

/** Indices of the columns in each part. */
function parts(widths: readonly number[], keys: number, columns: number): number[][] {
  const first = widths.map((_, i) => i).slice(0, keys);
  const width = (shown: readonly number[]) =>
    shown.reduce((sum, i) => sum + widths[i], 0) + GAP.length * (shown.length - 1);
  const all: number[][] = [];
  let open = [...first];
  for (let i = keys; i < widths.length; i++) {
    if (open.length > keys && width([...open, i]) > columns) {
      all.push(open);
      open = [...first];
    }
    open.push(i);
  }
  return [...all, open];
}

function withoutBeginning(text: string, longest: number): string {
  return text.length <= longest ? text : `…${text.slice(text.length - longest + 1)}`;
}

/** Markdown for a terminal: tables as {@link textTable} lays them out, and lines of words broken at the width. */
export function markdownText(markdown: string, columns: number | undefined): string {
  if (columns === undefined) return markdown;
  const out: string[] = [];
  const lines = markdown.split('\n');
  for (let i = 0; i < lines.length; ) {
    const end = lines.findIndex((line, at) => at >= i && !line.startsWith('|'));
    const table = lines.slice(i, end < 0 ? undefined : end);
    if (table.length > 1) {
      const [head, , ...rows] = table.map(row =>
        row
          .split('|')
          .slice(1, -1)
          .map(cell => cell.trim()),
      );
      out.push(textTable(head, rows, { columns, ruled: true }));
      i += table.length;
    } else out.push(broken(lines[i++], columns));
  }
  return out.join('\n');
}

function broken(line: string, columns: number): string {
  const out: string[] = [];
  for (const word of line.split(' ')) {
    const last = out.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= columns)
      out[out.length - 1] = `${last} ${word}`;
    else out.push(word);
  }
  return out.join('\n');
}
