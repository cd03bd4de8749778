import t from 'tap';
import { estimateAdvantages } from './registry.ts';

t.test('each turn’s return is normalized over the turns of the batch, however long they are', async t => {
  const batch = [
    { lossMask: [1, 1, 1, 0, 1], rewards: [0, 0, 1, 0, 2], turnEnds: [2, 4], groupId: 0 },
    { lossMask: [1], rewards: [0], turnEnds: [0], groupId: 1 },
  ];
  const { advantages, returns } = estimateAdvantages('rebn', batch, { gamma: 0.5 });
  t.same(
    returns.map(array => Array.from(array)),
    [[2, 2, 2, 0, 2], [0]],
  );
  const z = (2 - 4 / 3) / Math.sqrt(8 / 9);
  advantages[0].forEach((a, k) => {
    t.ok(Math.abs(a - (k === 3 ? 0 : z)) < 1e-8);
  });
  t.ok(Math.abs(advantages[1][0] + 2 * z) < 1e-8);
});
