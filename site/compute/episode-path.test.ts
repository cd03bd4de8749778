import t from 'tap';
import { pathOf } from './episode-digest.ts';
import { episodeOf } from './episode-record.ts';

const at = (row: number, col: number) => ({ player: [row, col] });
const pathFrom = (turns: object[], last: unknown) =>
  pathOf(episodeOf({ turns: turns.map(turn => ({ actions: [], ...turn })), final_structured: last })!);

t.test('a path has each step of the player once, also those between two turns', t => {
  const turns = [
    { structured: at(0, 0), between: [at(0, 1)] },
    { structured: at(1, 1) },
    { structured: at(1, 1) },
  ];
  t.same(pathFrom(turns, at(2, 1)), [
    [0, 0],
    [0, 1],
    [1, 1],
    [2, 1],
  ]);
  t.end();
});

t.test('without a player in each state there is no path', t => {
  t.equal(pathFrom([{ structured: at(0, 0) }], undefined), undefined);
  t.equal(pathFrom([{ structured: at(0, 0) }], null), undefined);
  t.equal(pathFrom([{ structured: { player: ['0', {}] } }], at(0, 1)), undefined);
  t.equal(pathFrom([{ structured: { player: [0.5, 1] } }], at(0, 1)), undefined);
  t.equal(pathFrom([{ structured: { player: 3 } }], at(0, 1)), undefined);
  t.end();
});

t.test('a path without end is not kept', t => {
  const long = Array.from({ length: 1000 }, (_, i) => ({ structured: at(i % 2, 0) }));
  t.equal(pathFrom(long, at(0, 0)), undefined);
  t.end();
});
