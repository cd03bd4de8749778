import t from 'tap';
import { offPolicyWeights } from './off-policy.ts';

const input = {
  lossMask: [1, 1, 0, 1],
  proximalLogProbs: [0, 0, Number.NaN, 0],
  behaviorLogProbs: [-Math.log(2), Math.log(2), 0, 0],
};
const weights = (settings: Parameters<typeof offPolicyWeights>[1]) =>
  Array.from(offPolicyWeights(input, settings), x => Math.round(x * 1e9) / 1e9);

t.test('each correction bounds the weights its own way', async t => {
  t.same(weights({ kind: 'none' }), [2, 0.5, 0, 1]);
  t.same(weights({ kind: 'tis', cap: 1.5 }), [1.5, 0.5, 0, 1]);
  t.same(weights({ kind: 'sequence_tis', cap: 1.5 }), [1, 1, 0, 1]);
  t.same(weights({ kind: 'icepop', low: 0.6, high: 3 }), [2, 0, 0, 1]);
});

t.test('the geometric mask keeps or drops a sequence whole', async t => {
  t.same(weights({ kind: 'geometric_mask', low: 0.9, high: 1.1 }), [2, 0.5, 0, 1]);
  const shifted = { ...input, behaviorLogProbs: [-1, -1, 0, -1] };
  const dropped = offPolicyWeights(shifted, { kind: 'geometric_mask', low: 0.9, high: 1.1 });
  t.same(Array.from(dropped), [0, 0, 0, 0]);
});

t.test('on-policy data has weight 1', async t => {
  const same = { ...input, behaviorLogProbs: [0, 0, 0, 0] };
  for (const settings of [
    { kind: 'none' },
    { kind: 'tis', cap: 2 },
    { kind: 'sequence_tis', cap: 2 },
    { kind: 'icepop', low: 0.5, high: 2 },
    { kind: 'geometric_mask', low: 0.9, high: 1.1 },
  ] as const) {
    t.same(Array.from(offPolicyWeights(same, settings)), [1, 1, 0, 1], settings.kind);
  }
});
