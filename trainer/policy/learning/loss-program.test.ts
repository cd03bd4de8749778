import { InferenceSession } from 'onnxruntime-node';
import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { numericLoss } from '../../algorithms/losses/reference.test-data.ts';
import { DEFAULT_LOSS_SETTINGS } from '../../algorithms/losses/settings.ts';
import { averagedLoss, LossProgram, summedLoss } from './loss-program.ts';

const settings = { ...DEFAULT_LOSS_SETTINGS, dualClip: 0, entropyCoefficient: 0 };
const LENGTHS = [2, 127, 128, 129, 200, 256, 257, 300, 383, 385, 400, 511, 512];

/** Sequences of a length with log-probabilities near those that they were sampled with. */
function batchOf(length: number, count: number) {
  const random = Random.fromSeed(length);
  const noise = () => Float32Array.from({ length }, () => random.normal());
  const sequences = Array.from({ length: count }, () => ({
    tokenIds: new Int32Array(length),
    lossMask: new Uint8Array(length).fill(1, 1),
    logProbs: noise(),
    advantages: noise(),
  }));
  const logProbs = sequences.map(own => own.logProbs.map(x => x + 0.2 * random.normal()));
  return { sequences, logProbs };
}

t.test('any length has the loss and gradient of its definition, by a few programs', async t => {
  const compiled = t.capture(InferenceSession, 'create', InferenceSession.create);
  const program = new LossProgram();
  for (const length of LENGTHS) {
    const { sequences, logProbs } = batchOf(length, 3);
    const batch = averagedLoss(sequences, settings, { value: false, entropy: false });
    const { counts, structure } = batch;
    const outputs = logProbs.map(own => ({ logProbs: own }));
    const wanted = numericLoss(sequences, outputs, settings, structure, counts);
    const found = await program.run(batch, logProbs);
    t.ok(Math.abs(found.loss - wanted.loss) < 1e-5 * Math.max(1, Math.abs(wanted.loss)), `${length}: loss`);
    found.gradients.forEach((own, i) => {
      const far = own.reduce(
        (most, x, t) => Math.max(most, Math.abs(x - wanted.gradients.logProbs[i][t])),
        0,
      );
      t.ok(own.length === length && far < 1e-6, `${length}: gradient ${i} is off by ${far}`);
    });
    const { loss } = await program.run(summedLoss(sequences, settings), logProbs);
    t.ok(Math.abs(loss / counts.tokens - found.loss) < 1e-5, `${length}: the sum`);
  }
  // One more shows the heap its blocks.
  t.equal(compiled().length, 4, 'widths of 128, 256 and 512');
  await program.close();
});
