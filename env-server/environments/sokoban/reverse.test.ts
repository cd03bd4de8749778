import t from 'tap';
import { atOnce } from '../../../shared/slices.ts';
import { golden } from '../../../test/golden.test-data.ts';
import { pullApart, type SearchBudget } from './reverse.ts';

interface Rooms {
  rooms: { tag: string; room_fixed: number[][]; room_state: number[][] }[];
}

/** The golden rooms do not say where the player stood before the pulling, so every floor cell is tried. */
t.test('the boxes of every golden room are where the search pulls them from some start', async t => {
  for (const { tag, room_fixed, room_state } of golden<Rooms>('sokoban_seed_rooms.json').rooms) {
    const fixed = room_fixed.flat();
    const state = room_state.flat();
    const cellsOf = (codes: number[], ...wanted: number[]) =>
      codes.flatMap((code, cell) => (wanted.includes(code) ? [cell] : []));
    const wanted = cellsOf(state, 3, 4);
    const found = cellsOf(fixed, 1).some(player => {
      const budget: SearchBudget = { states: 0 };
      const searching = pullApart(
        {
          rows: room_fixed.length,
          cols: room_fixed[0].length,
          floor: Uint8Array.from(fixed, code => (code === 0 ? 0 : 1)),
          player,
          targets: cellsOf(fixed, 2),
          searchDepth: tag === 'LargerSokoban' ? 10 : 300,
        },
        budget,
      );
      const pulled = atOnce(searching);
      if (budget.states >= 0) t.fail('nothing was charged');
      return pulled?.boxes.toSorted((a, b) => a - b).join() === wanted.join();
    });
    t.ok(found, tag);
  }
});
