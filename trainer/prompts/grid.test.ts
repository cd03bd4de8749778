import t from 'tap';
import { type Grid, readGrid } from './compact.ts';

/** The state of a grid; the inverse of {@link readGrid}. */
function writeGrid(grid: Grid, wall: string): string {
  const rows = grid.rows.map(row => row.join(''));
  if (!grid.walled) return rows.join('\n');
  const edge = wall.repeat(grid.rows[0].length + 2);
  return [edge, ...rows.map(row => wall + row + wall), edge].join('\n');
}

const SYMBOLS = new Set(['#', '_', 'P', '√']);

t.test('a grid survives encoding unchanged, with and without a border', async t => {
  for (const state of [
    '####\n#P_#\n#_√#\n####',
    'P_\n_√',
    '####\n#P_#\n#_√_\n####',
    '###\n###\n###',
    '##\n##',
  ]) {
    t.equal(writeGrid(readGrid(state, SYMBOLS, '#')!, '#'), state);
    t.equal(writeGrid(readGrid(state, SYMBOLS, undefined)!, '#'), state);
  }
  t.same(readGrid('####\n#P_#\n#_√#\n####', SYMBOLS, '#')?.rows, [
    ['P', '_'],
    ['_', '√'],
  ]);
  t.equal(readGrid('####\n#P_#\n#_√_\n####', SYMBOLS, '#')?.walled, false);
});

t.test('text that is not a grid is not read as a grid', async t => {
  for (const state of ['', 'P_\n_', 'P?\n__', 'Clerk or Stuntman', 'P_\n']) {
    t.equal(readGrid(state, SYMBOLS, '#'), undefined, JSON.stringify(state));
  }
});
