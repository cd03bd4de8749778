import { readFileSync } from 'node:fs';
import t from 'tap';
import type { AdvantageSequence } from './estimator.ts';
import { estimateAdvantages } from './registry.ts';

type Matrix = number[][];
interface Case {
  readonly source: string;
  readonly function: string;
  readonly mask: Matrix;
  readonly index: readonly string[];
  readonly components?: Readonly<Record<string, number[]>>;
  readonly weights?: Readonly<Record<string, number>> | readonly number[] | null;
  readonly std_normalize?: boolean;
  readonly scores?: readonly number[];
  readonly token_level_rewards?: Matrix;
  readonly old_log_probs?: Matrix;
  readonly sum_pi_squared?: Matrix;
  readonly rollout_is_weights?: Matrix | null;
  readonly handle_zero_tail?: boolean;
  readonly advantages?: Matrix;
  readonly error?: string;
}
interface Trace {
  readonly agent: string;
  readonly reward: number;
  readonly advantage: number;
}

const golden = JSON.parse(
  readFileSync(new URL('../../../test/golden/algorithms_2026.json', import.meta.url), 'utf8'),
) as { advantages: Case[]; episodes: Record<string, unknown>[]; distillation: Record<string, unknown>[] };

const near = (a: number, b: number, tolerance = 1e-6) =>
  Math.abs(a - b) <= tolerance * Math.max(1, Math.abs(b));
const same = (found: readonly ArrayLike<number>[], wanted: Matrix, tolerance?: number) =>
  wanted.every((row, i) => row.every((x, k) => near(found[i][k], x, tolerance)));

function sequences(data: Case): AdvantageSequence[] {
  return data.mask.map((lossMask, i) => {
    const rewards = data.token_level_rewards?.[i] ?? lossMask.map(() => 0);
    if (data.scores) rewards[lossMask.lastIndexOf(1)] = data.scores[i];
    return {
      lossMask,
      rewards,
      groupId: data.index[i],
      ...(data.components
        ? {
            components: Object.fromEntries(
              Object.entries(data.components).map(([key, row]) => [key, row[i]]),
            ),
          }
        : {}),
      logProbs: data.old_log_probs?.[i],
      squaredProbabilities: data.sum_pi_squared?.[i],
      ...(data.rollout_is_weights ? { rolloutWeights: data.rollout_is_weights[i] } : {}),
    };
  });
}

/** Weights by name, where the original has them in the order of the keys, or not at all. */
function weightsOf({ components = {}, weights }: Case): Record<string, number> {
  const keys = Object.keys(components);
  return Object.fromEntries(
    keys.map((key, i) => [
      key,
      Array.isArray(weights) ? weights[i] : ((weights as Record<string, number>)?.[key] ?? 1),
    ]),
  );
}

golden.advantages.forEach((data, index) => {
  const name = `golden ${data.source} ${data.function}, case ${index}`;
  if (data.function === 'gdpo') {
    t.test(name, async t => {
      const settings = { components: weightsOf(data), stdNormalize: data.std_normalize };
      t.ok(same(estimateAdvantages('gdpo', sequences(data), settings).advantages, data.advantages!, 1e-5));
    });
  } else if (data.function === 'grpo_passk') {
    t.test(name, async t => {
      if (data.error) {
        const alone = [{ lossMask: [1], rewards: [1], groupId: 'x' }];
        t.throws(() => estimateAdvantages('pass_at_k', alone), {
          message: /at least 2 episodes in a group, but group x has 1/,
        });
        return;
      }
      const settings = { stdNormalize: data.std_normalize };
      t.ok(same(estimateAdvantages('pass_at_k', sequences(data), settings).advantages, data.advantages!));
    });
  } else if (data.function === 'tir_optimal_token_baseline') {
    t.test(name, async t => {
      const { advantages } = estimateAdvantages('otb', sequences(data), {
        handleZeroTail: data.handle_zero_tail,
      });
      const trained = (rows: readonly ArrayLike<number>[]) =>
        rows.map((row, i) => Array.from(row).filter((_, k) => data.mask[i][k]));
      t.ok(same(trained(advantages), trained(data.advantages!)));
    });
  }
});

golden.episodes.forEach((data, index) => {
  if (data.function === 'rae') {
    t.test(`golden rae, case ${index}`, async t => {
      let baselines: Readonly<Record<string, number>> = {};
      for (const group of data.groups as { episodes: Trace[][]; baselines_after: Record<string, number> }[]) {
        const traces = group.episodes.flat();
        const found = estimateAdvantages('rae', traces.map(sequenceOf), {
          decay: data.decay as number,
          baselines,
        });
        baselines = found.baselines!;
        t.ok(traces.every(({ advantage }, i) => near(found.advantages[i][0], advantage)));
        for (const [agent, value] of Object.entries(group.baselines_after))
          t.ok(near(baselines[agent], value));
      }
    });
  } else if (data.function === 'hierarchical_grpo') {
    t.test(`golden hierarchical_grpo, case ${index}`, async t => {
      const episodes = data.episodes as { id: string; traces: Trace[] }[];
      const traces = episodes.flatMap(({ id, traces }) => traces.map(trace => ({ ...trace, id })));
      const batch = traces.map(trace => ({ ...sequenceOf(trace), sceneId: trace.id }));
      const episodeAgents = data.episode_agents as string[];
      const run = (agents: string[]) =>
        estimateAdvantages('hierarchical_grpo', batch, { episodeAgents: agents });
      if (episodeAgents.includes('nobody')) {
        t.throws(() => run(episodeAgents), { message: /names nobody, but the agents are proposer, solver/ });
      }
      const { advantages } = run(episodeAgents.filter(name => name !== 'nobody'));
      t.ok(traces.every(({ advantage }, i) => near(advantages[i][0], advantage)));
    });
  }
});

function sequenceOf({ agent, reward }: Trace): AdvantageSequence {
  return { lossMask: [1], rewards: [reward], groupId: 0, agent };
}

t.test('golden iw_opd', async t => {
  const data = golden.distillation.find(({ set }) => set === 'iw_opd')!;
  const labels = data.labels as Matrix;
  const teacher = data.teacher_log_probs as Matrix;
  const logits = data.student_logits as number[][][];
  const logProb = (i: number, k: number) => {
    const row = logits[i][k];
    const largest = Math.max(...row);
    const sum = row.reduce((total, x) => total + Math.exp(x - largest), 0);
    return row[(data.completion_ids as Matrix)[i][k]] - largest - Math.log(sum);
  };
  for (const one of data.cases as Record<string, unknown>[]) {
    if (one.error) continue;
    const rollout = (one.rollout_log_probs ??
      labels.map((row, i) => row.map((_, k) => logProb(i, k)))) as Matrix;
    const batch = labels.map((row, i) => ({
      lossMask: row.map((label): number => (label === -100 ? 0 : 1)),
      rewards: row.map(() => 0),
      groupId: i,
      logProbs: rollout[i],
      referenceLogProbs: teacher[i],
    }));
    const { advantages, metrics } = estimateAdvantages('iw_opd', batch, { earlyWeight: one.gamma as number });
    const tokens = batch.flatMap(({ lossMask }) => lossMask).reduce((a, b) => a + b);
    const loss = advantages.reduce(
      (sum, row, i) => row.reduce((own, a, k) => own - (a === 0 ? 0 : a * logProb(i, k)), sum),
      0,
    );
    t.ok(near(loss / tokens, one.loss as number), `γ = ${one.gamma}`);
    for (const [key, value] of Object.entries(one.metrics as Record<string, number>)) {
      t.ok(near(metrics![key], value), key);
    }
    const [first, ...rest] = batch;
    const gone = {
      ...first,
      referenceLogProbs: first.referenceLogProbs.with(first.lossMask.indexOf(1), Number.NaN),
    };
    t.throws(() => estimateAdvantages('iw_opd', [gone, ...rest], {}), {
      message: /needs one for every sampled token/,
    });
  }
});
