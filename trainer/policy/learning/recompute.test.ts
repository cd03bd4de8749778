import t from 'tap';
import { initialize, parameterSpecs } from '../../models/parameters.ts';
import { gradients } from '../../tensor/graph/gradients.ts';
import { interpret } from '../../tensor/graph/interpreter.test-data.ts';
import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import { closing, config, largestDifference, play, policyWith, settingsWith } from '../policies.test-data.ts';
import { buildSequenceGraph } from './sequence-graph.ts';

t.test('recomputed layers and smaller micro-batches leave an update what it is', async t => {
  const model = { ...config, layers: 2, queryKeyNorm: 'head' as const };
  const usual = await closing(t, policyWith({ model }));
  const sequences = await play(usual, 4);
  const expected = await usual.update({ sequences }, settingsWith());
  const scores = await usual.score(sequences);
  const policy = await closing(t, policyWith({ model, recompute: true, tokenBudget: 32 }));
  const metrics = await policy.update({ sequences }, settingsWith());
  for (const [name, value] of Object.entries(expected)) {
    t.ok(Math.abs(metrics[name] - value) <= 1e-5 * Math.max(1, Math.abs(value)), name);
  }
  const after = await policy.score(sequences);
  scores.forEach(({ logProbs }, i) => {
    t.ok(largestDifference(logProbs, after[i].logProbs) < 1e-4, `after the step, sequence ${i}`);
  });
});

t.test('logits in pieces give the values and gradients of whole ones', async t => {
  const shape = { rows: 2, time: 5, predictions: 5, packed: null };
  const ids = Int32Array.of(1, 2, 3, 4, 5, 5, 4, 3, 2, 1);
  const run = (piece: number, tiedEmbeddings: boolean) => {
    const options = { valueHead: false, critic: false, masks: 0, logitRows: piece };
    const model = { ...config, tiedEmbeddings };
    const { g, logProbs, entropies } = buildSequenceGraph(model, shape, options);
    const weights = g.constant(
      Float32Array.from(ids, (_, i) => Math.sin(i)),
      [2, 5],
    );
    const loss = g.sum(g.add(g.mul(logProbs!, weights), g.mul(entropies!, entropies!)));
    const specs = parameterSpecs(model, false);
    const grads = gradients(
      g,
      loss,
      specs.map(({ name, shape }) => g.parameter(name, shape)),
    );
    specs.forEach(({ name }, i) => {
      g.output(name, grads[i]);
    });
    g.output('loss', loss);
    const store = new ParameterStore(specs);
    initialize(store, specs, 0.5, 3);
    const values = Object.fromEntries(specs.map(({ name }) => [name, store.array(name)]));
    return interpret(g.build(), { ...values, ids, targets: ids.toReversed(), inverseTemperature: [0.7] });
  };
  for (const tied of [true, false]) {
    const whole = run(10, tied);
    const pieces = run(3, tied);
    for (const [name, expected] of Object.entries(whole)) {
      const worst = expected.reduce((most, x, i) => Math.max(most, Math.abs(x - pieces[name][i])), 0);
      t.ok(worst < 1e-12, `${name}: ${worst}`);
    }
  }
});
