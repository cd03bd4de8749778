/** A state drawn as rows of single-character symbols. */
export interface Grid {
  readonly rows: readonly (readonly string[])[];
  /** The outermost cells were all walls and are left out of `rows`. */
  readonly walled: boolean;
}

/**
 * Reads a state as a grid, and drops a border that is all wall: nothing is lost, since `walled` says so.
 * @param symbols the symbols a cell can be; each one character
 * @param wall the symbol of a wall, where the environment has one
 * @returns undefined where the text is no grid: a foreign character, rows of different lengths
 */
export function readGrid(
  state: string,
  symbols: ReadonlySet<string>,
  wall: string | undefined,
): Grid | undefined {
  const rows: string[][] = [];
  for (const line of state.split('\n')) {
    const cells = Array.from(line);
    if (cells.length === 0 || (rows.length > 0 && cells.length !== rows[0].length)) return undefined;
    for (const cell of cells) if (!symbols.has(cell)) return undefined;
    rows.push(cells);
  }
  if (wall === undefined || !hasBorder(rows, wall)) return { rows, walled: false };
  return { rows: rows.slice(1, -1).map(row => row.slice(1, -1)), walled: true };
}

/** The state of a grid; the inverse of {@link readGrid}. */
export function writeGrid(grid: Grid, wall: string): string {
  const rows = grid.rows.map(row => row.join(''));
  if (!grid.walled) return rows.join('\n');
  const edge = wall.repeat(grid.rows[0].length + 2);
  return [edge, ...rows.map(row => wall + row + wall), edge].join('\n');
}

/** The border is all wall and there is something inside it. */
function hasBorder(rows: readonly (readonly string[])[], wall: string): boolean {
  const last = rows.length - 1;
  if (last < 2 || rows[0].length < 3) return false;
  return (
    rows[0].every(cell => cell === wall) &&
    rows[last].every(cell => cell === wall) &&
    rows.every(row => row[0] === wall && row.at(-1) === wall)
  );
}
