import { readFileSync } from 'node:fs';
import t from 'tap';
import { gradients } from '../../tensor/graph/gradients.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import { interpret } from '../../tensor/graph/interpreter.test-data.ts';
import { estimateAdvantages } from '../advantages/registry.ts';
import { countLossTokens } from './aggregation.ts';
import { lossInputs, lossScalars, lossStructure } from './inputs.ts';
import { DEFAULT_LOSS_SETTINGS } from './settings.ts';
import { buildUpdateLoss, declareLossInputs, lossInputName } from './update-loss.ts';

const closed = JSON.parse(
  readFileSync(new URL('../../../test/golden/closed_form.json', import.meta.url), 'utf8'),
);

/** Gradient of the loss with respect to the two logits of a bandit, both arms pulled once under π = (½, ½). */
function banditGradient(rewards: readonly [number, number]): Float64Array {
  const { advantages } = estimateAdvantages(
    'dr_grpo',
    rewards.map(reward => ({ lossMask: [1], rewards: [reward], groupId: 0 })),
  );
  const sequences = advantages.map(own => ({
    tokenIds: Int32Array.of(0),
    lossMask: Uint8Array.of(1),
    logProbs: Float32Array.of(Math.log(0.5)),
    advantages: Float32Array.from(own),
  }));
  const settings = { ...DEFAULT_LOSS_SETTINGS, entropyCoefficient: 0 };
  const structure = lossStructure(settings, { value: false, entropy: false });
  const counts = countLossTokens(sequences);
  const g = new GraphBuilder();
  const logits = g.parameter('logits', [2]);
  const logProbs = g.takeLast(
    g.broadcastTo(g.reshape(g.logSoftmax(logits), [1, 2]), [2, 2]),
    g.constant([0, 1], [2], 'int32'),
  );
  const inputs = declareLossInputs(g, structure, [2]);
  const { loss } = buildUpdateLoss(g, { logProbs }, inputs, structure);
  g.output('gradient', gradients(g, loss, [logits])[0]);
  const rows = sequences.map(sequence => lossInputs(sequence, settings, structure, counts));
  const scalars = lossScalars(settings, counts);
  const feeds: Record<string, number[]> = { logits: [0, 0] };
  for (const name of inputs.tokens.keys()) feeds[lossInputName(name)] = rows.map(row => row[name]![0]);
  for (const name of inputs.scalars.keys()) feeds[lossInputName(name)] = [scalars[name]];
  return interpret(g.build(), feeds).gradient;
}

t.test('the policy gradient of a two-armed bandit is exact', async t => {
  const descent = Array.from(banditGradient([1, 0]), x => -x);
  descent.forEach((x, i) => {
    t.ok(Math.abs(x - closed.softmax_pg[i]) < 1e-7, `logit ${i}`);
  });
});

t.test('a reward of 0 moves no weight', async t => {
  t.ok(banditGradient([0, 0]).every(x => x === 0));
});
