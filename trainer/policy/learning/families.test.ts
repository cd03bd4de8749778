import t from 'tap';
import { parseConfig } from '../../models/config-json.ts';
import { FAMILY_MODELS, goldenFamily } from '../../models/families.test-data.ts';
import { goldenBatch, goldenWeights, read } from '../../models/golden.test-data.ts';
import { OnnxRuntime } from '../../tensor/runtime/onnx/onnx-runtime.ts';
import { ScoreProgram, scoreContinuations } from './score-program.ts';

const runtime = new OnnxRuntime();
t.after(() => runtime.close());

for (const model of FAMILY_MODELS) {
  t.test(`${model} scores packed rows, and continuations of a prefix, as transformers does`, async t => {
    const config = parseConfig(read(model, 'config.json'));
    const { ids, mask } = goldenBatch(model);
    const { next_token_logprob: golden } = goldenFamily(model).forward;
    const options = {
      config,
      runtime,
      parameters: await goldenWeights(model, config),
      valueHead: false,
      critic: false,
      grammars: new Map(),
      tokenBudget: 128,
      packing: true,
    };
    const rows = ids.map((row, r) => row.filter((_, i) => mask[r][i] === 1));
    // The second half alone is asked for, so that the last layer selects positions.
    const starts = rows.map(row => Math.floor(row.length / 2));
    const requests = rows.map((row, r) => ({
      tokenIds: Int32Array.from(row),
      lossMask: new Uint8Array(row.length).fill(1, starts[r]),
    }));
    const expected = rows.map((row, r) => {
      const first = mask[r].indexOf(1);
      return golden[r].slice(first + starts[r] - 1, first + row.length - 1);
    });
    const scores = await new ScoreProgram(options).run(requests, 1);
    scores.forEach(({ logProbs }, r) => {
      expected[r].forEach((value, i) => {
        const got = logProbs[starts[r] + i];
        if (Math.abs(got - value) > 5e-6 * Math.max(4, Math.abs(value)))
          t.fail(`row ${r}, ${i}: ${got}, not ${value}`);
      });
    });
    const continued = rows.map((row, r) => ({
      prompt: Int32Array.from(row.slice(0, starts[r])),
      continuations: [row.slice(starts[r]), row.slice(starts[r], starts[r] + 3)].map(ids =>
        Int32Array.from(ids),
      ),
    }));
    const program = new ScoreProgram(options);
    const limits = { maxSequenceLength: 1000, vocabularySize: config.vocabularySize };
    const sums = await scoreContinuations(continued, limits, sequences => program.run(sequences, 1));
    sums.forEach(([whole, part], r) => {
      const sum = (values: readonly number[]) => values.reduce((total, x) => total + x, 0);
      t.ok(Math.abs(whole - sum(expected[r])) < 1e-4, `continuation of row ${r}`);
      t.ok(Math.abs(part - sum(expected[r].slice(0, 3))) < 1e-4, `short continuation of row ${r}`);
    });
  });
}

t.test('a temperature divides logits after their cap', async t => {
  const config = parseConfig(read('families/gemma2', 'config.json'));
  const parameters = await goldenWeights('families/gemma2', config);
  const options = { config, runtime, parameters, valueHead: false, critic: false, grammars: new Map() };
  const program = new ScoreProgram({ ...options, tokenBudget: 64, packing: false });
  const request = { tokenIds: Int32Array.of(5, 9, 33), lossMask: Uint8Array.of(0, 1, 1) };
  const [cold] = await program.run([request], 1e-3);
  const [warm] = await program.run([request], 1);
  // Capped at 3, the logits of a token differ by at most 6 / 0.001.
  t.ok(cold.logProbs.every(logProb => logProb >= -6000 - 10));
  t.ok(warm.logProbs.every(logProb => logProb >= -6 - Math.log(64)));
});
