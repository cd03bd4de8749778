import t from 'tap';
import { Random } from '../../../shared/random.ts';
import type { AdvantageSequence } from './estimator.ts';
import { ADVANTAGES, estimateAdvantages } from './registry.ts';

/** Multi-turn episodes in groups of four; masked entries of rewards and values differ from what compacting leaves. */
function makeBatch(seed: number, reward: (random: Random) => number): AdvantageSequence[] {
  const random = Random.fromSeed(seed);
  return Array.from({ length: 12 }, (_, i) => {
    const lossMask: number[] = [];
    const turnEnds: number[] = [];
    const states: string[] = [];
    for (let turn = 0; turn < 1 + random.integer(3); turn++) {
      states.push(turn === 0 ? 'start' : `s${random.integer(2)}`);
      lossMask.push(...new Array<number>(1 + random.integer(3)).fill(0));
      lossMask.push(...new Array<number>(1 + random.integer(4)).fill(1));
      turnEnds.push(lossMask.length - 1);
    }
    lossMask.push(0);
    const rewards = new Array<number>(lossMask.length).fill(0);
    for (const end of turnEnds) rewards[end] = reward(random);
    const values = lossMask.map(() => 2 * random.float() - 1);
    const logProbs = lossMask.map(() => -random.float());
    return {
      lossMask,
      rewards,
      values,
      turnEnds,
      states,
      finalState: 's0',
      success: random.chance(0.5),
      logProbs,
      referenceLogProbs: logProbs.map(x => x - random.float()),
      squaredProbabilities: lossMask.map(() => random.float()),
      components: { task: rewards.reduce((a, b) => a + b, 0) },
      groupId: Math.floor(i / 4),
      leaf: `${i}`,
      vine: {
        rewards: turnEnds.map(end => rewards[end]),
        continuations: turnEnds.map(() => [reward(random), reward(random)]),
        trained: turnEnds.map((_, turn) => turn),
      },
      turnNodes: turnEnds.map(() => `${i}`),
    };
  });
}

const positive = (random: Random) => random.float();

function compact(sequence: AdvantageSequence): AdvantageSequence {
  const kept = Array.from(sequence.lossMask).flatMap((on, k) => (on ? [k] : []));
  const pick = (values: ArrayLike<number>) => kept.map(k => values[k]);
  return {
    ...sequence,
    lossMask: kept.map(() => 1),
    rewards: pick(sequence.rewards),
    values: pick(sequence.values!),
    logProbs: pick(sequence.logProbs!),
    referenceLogProbs: pick(sequence.referenceLogProbs!),
    squaredProbabilities: pick(sequence.squaredProbabilities!),
    turnEnds: sequence.turnEnds!.map(end => kept.indexOf(end)),
  };
}

const settings = { gamma: 0.9, lambda: 0.8, turnLambda: 0.6, components: { task: 1 } };
/** Its baselines move from episode to episode. */
const ORDERED = ['rae'];

function near(a: ArrayLike<number>, b: ArrayLike<number>): boolean {
  return a.length === b.length && Array.from(a).every((x, i) => Math.abs(x - b[i]) < 1e-9);
}

for (const name of ADVANTAGES) {
  t.test(`${name}: masked equals compacted`, async t => {
    for (const seed of [1, 2, 3]) {
      const batch = makeBatch(seed, positive);
      const full = estimateAdvantages(name, batch, settings);
      const dense = estimateAdvantages(name, batch.map(compact), settings);
      for (const key of ['advantages', 'returns'] as const) {
        batch.forEach(({ lossMask }, i) => {
          t.ok(
            near(
              full[key][i].filter((_, k) => lossMask[k]),
              dense[key][i],
            ),
            `${key} of ${i}`,
          );
        });
      }
    }
  });

  t.test(`${name}: what the loss mask excludes is never read`, async t => {
    const batch = makeBatch(4, positive);
    const noisy = batch.map(sequence => ({
      ...sequence,
      values: Array.from(sequence.values!, (value, k) => (sequence.lossMask[k] ? value : Number.NaN)),
    }));
    const clean = estimateAdvantages(name, batch, settings).advantages;
    const found = estimateAdvantages(name, noisy, settings).advantages;
    batch.forEach(({ lossMask }, i) => {
      const kept = (array: Float64Array) => array.filter((_, k) => lossMask[k]);
      t.ok(near(kept(found[i]), kept(clean[i])));
    });
  });

  t.test(`${name}: the order of the batch does not matter`, { skip: ORDERED.includes(name) }, async t => {
    const batch = makeBatch(5, positive);
    const order = Random.fromSeed(6).shuffle(batch.map((_, i) => i));
    const plain = estimateAdvantages(name, batch, settings).advantages;
    const shuffled = estimateAdvantages(
      name,
      order.map(i => batch[i]),
      settings,
    ).advantages;
    order.forEach((i, k) => {
      t.ok(near(shuffled[k], plain[i]));
    });
  });

  t.test(`${name}: no reward, no advantage`, async t => {
    const batch = makeBatch(7, () => 0).map(sequence => ({
      ...sequence,
      values: Array.from(sequence.lossMask, () => 0),
      referenceLogProbs: sequence.logProbs,
      success: false,
    }));
    for (const array of estimateAdvantages(name, batch, settings).advantages) {
      t.ok(array.every(a => a === 0));
    }
  });
}

const groupRelative = [
  'grpo',
  'dr_grpo',
  'rloo',
  'reinforce_pp_baseline',
  'opo',
  'gigpo',
  'pass_at_k',
  'hierarchical_grpo',
];
for (const name of groupRelative) {
  t.test(`${name}: a bonus for all episodes changes nothing`, async t => {
    const batch = makeBatch(8, positive);
    const richer = batch.map(sequence => {
      const rewards = Array.from(sequence.rewards);
      rewards[sequence.turnEnds!.at(-1)!] += 5;
      return { ...sequence, rewards };
    });
    const own = name === 'gigpo' ? { ...settings, stepWeight: 0 } : settings;
    const plain = estimateAdvantages(name, batch, own).advantages;
    estimateAdvantages(name, richer, own).advantages.forEach((array, i) => {
      t.ok(near(array, plain[i]));
    });
  });
}
