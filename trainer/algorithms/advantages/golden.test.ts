import { readFileSync } from 'node:fs';
import t from 'tap';
import type { AdvantageSequence } from './estimator.ts';
import { groupStds } from './groups.ts';
import { estimateAdvantages } from './registry.ts';

interface Estimate {
  readonly adv: number[][];
  readonly ret?: number[][];
  readonly group_std?: number[];
  readonly rewards?: number[][];
  readonly episode_ids?: number[];
}
type Case = { readonly index: string[] } & Record<
  'rewards' | 'turn_rewards' | 'values' | 'mask',
  number[][]
> &
  Record<string, unknown>;

const folder = new URL('../../../test/golden/', import.meta.url);
const read = (name: string) => JSON.parse(readFileSync(new URL(name, folder), 'utf8'));
const { cases } = read('advantages_losses.json') as { cases: Case[] };
const closed = read('closed_form.json');

/** Largest difference relative to the size of the numbers. */
function difference(found: readonly ArrayLike<number>[], wanted: readonly ArrayLike<number>[]): number {
  let largest = 0;
  wanted.forEach((row, i) => {
    for (let k = 0; k < row.length; k++) {
      largest = Math.max(largest, Math.abs(found[i][k] - row[k]) / Math.max(1, Math.abs(row[k])));
    }
    if (found[i].length !== row.length) largest = Number.POSITIVE_INFINITY;
  });
  return largest;
}

function sequences(data: Case, rewards: number[][], episodes?: number[]): AdvantageSequence[] {
  return data.mask.map((mask, i) => ({
    lossMask: mask,
    rewards: rewards[i],
    values: data.values[i],
    turnEnds: rewards[i].flatMap((r, k) => (r === 0 ? [] : [k])),
    groupId: data.index[i],
    episodeId: episodes?.[i],
  }));
}

cases.forEach((data, number) => {
  t.test(`golden advantages, case ${number}`, async t => {
    const check = (name: string, key: string, settings: object, batch: AdvantageSequence[]) => {
      const wanted = data[key] as Estimate;
      const found = estimateAdvantages(name, batch, settings);
      t.ok(difference(found.advantages, wanted.adv) < 1e-4, `${key} advantages`);
      if (wanted.ret) t.ok(difference(found.returns, wanted.ret) < 1e-4, `${key} returns`);
    };
    const outcomes = sequences(data, data.rewards);
    const turns = sequences(data, data.turn_rewards);
    for (const [gamma, lambda] of [
      [1, 1],
      [0.99, 0.95],
    ]) {
      const suffix = `${gamma === 1 ? '1.0' : gamma}_${lambda === 1 ? '1.0' : lambda}`;
      check('gae', `gae_${suffix}`, { gamma, lambda }, outcomes);
      check('bi_level_gae', `bilevel_${suffix}_hg0.95`, { gamma, lambda, highLevelGamma: 0.95 }, turns);
    }
    for (const name of ['grpo', 'dr_grpo', 'rloo', 'reinforce_pp_baseline']) {
      check(name, name, {}, outcomes);
    }
    const { group_std } = data.grpo as Estimate;
    t.ok(difference([groupStds(outcomes)], [group_std!]) < 1e-4, 'group std');
    const repeated = data.grpo_episode_dedup as Estimate;
    check('grpo', 'grpo_episode_dedup', {}, sequences(data, repeated.rewards!, repeated.episode_ids));
  });

  t.test(`golden reinforce_pp, case ${number}: verl cuts the reward-to-go at observations`, async t => {
    for (const [key, gamma] of [
      ['reinforce_pp_1.0', 1],
      ['reinforce_pp_0.99', 0.99],
    ] as const) {
      const wanted = data[key] as Estimate;
      const settings = { gamma, acrossTurns: false };
      const found = estimateAdvantages('reinforce_pp', sequences(data, data.rewards), settings);
      t.ok(difference(found.advantages, wanted.adv) < 1e-4, key);
      const trained = (rows: readonly ArrayLike<number>[]) =>
        rows.map((row, i) => Array.from(row).filter((_, k) => data.mask[i][k]));
      t.ok(difference(trained(found.returns), trained(wanted.ret!)) < 1e-4, `${key} returns`);
    }
  });
});

const group = (rewards: number[], lengths = rewards.map(() => 1)): AdvantageSequence[] =>
  rewards.map((reward, i) => ({
    lossMask: new Array<number>(lengths[i]).fill(1),
    rewards: [...new Array<number>(lengths[i] - 1).fill(0), reward],
    groupId: 0,
  }));
const firsts = (name: string, batch: AdvantageSequence[], settings = {}) =>
  estimateAdvantages(name, batch, settings).advantages.map(array => array[0]);

t.test('closed form: GAE steps over masked tokens', async t => {
  const sequence = {
    lossMask: [1, 1, 0, 0, 1, 1],
    rewards: [0, 0, 0, 0, 0, 1],
    values: [0.1, 0.2, 9, 9, 0.3, 0.4],
    groupId: 0,
  };
  const settings = { gamma: 1, lambda: 0.95 };
  const raw = estimateAdvantages('gae', [sequence], { ...settings, whiten: false });
  t.ok(difference(raw.advantages, [closed.gae_masked.adv_pre_whiten]) < 1e-6);
  t.ok(difference(raw.returns, [closed.gae_masked.returns]) < 1e-6);
  const white = estimateAdvantages('gae', [sequence], settings).advantages[0];
  const kept = white.filter((_, k) => sequence.lossMask[k]);
  t.ok(difference([kept], [closed.gae_masked.adv_whitened_at_mask]) < 1e-6);
});

t.test('closed form: bi-level GAE', async t => {
  const sequence = {
    lossMask: new Array<number>(10).fill(1),
    rewards: [0, 0, 0, 0, 1, 0, 0, 0, 0, 1],
    values: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1],
    turnEnds: [4, 9],
    groupId: 0,
  };
  const run = (lambda: number, highLevelGamma: number) =>
    estimateAdvantages('bi_level_gae', [sequence], { gamma: 1, lambda, highLevelGamma, whiten: false })
      .advantages;
  t.ok(difference(run(0.95, 1), [closed.bilevel.adv]) < 1e-6);
  t.ok(difference(run(1, 0.95), [closed['bilevel_lam1_hg.95']]) < 1e-6);
});

t.test('closed form: group estimators', async t => {
  t.ok(difference([firsts('grpo', group([1, 0, 0, 1]))], [closed.grpo_1001]) < 1e-6);
  t.ok(difference([firsts('dr_grpo', group([1, 0, 0, 1]))], [closed.drgrpo_1001]) < 1e-6);
  t.ok(difference([firsts('rloo', group([1, 0, 0, 1]))], [closed.rloo_1001]) < 1e-6);
  t.ok(difference([firsts('grpo', group([1, 2, 4]))], [closed.grpo_124]) < 1e-6);
  t.ok(difference([firsts('rloo', group([1, 2, 4]))], [closed.rloo_124]) < 1e-6);
  t.ok(difference([firsts('maxrl', group([1, 0, 0, 1]))], [closed.maxrl_1001]) < 1e-6);
  const lengths = group([1, 0, 0, 1], [2, 4, 4, 10]);
  t.ok(difference([firsts('opo', lengths)], [closed.opo_1001_len2_4_4_10]) < 1e-6);
});

t.test('closed form: reward-to-go passes over masked tokens', async t => {
  const sequence = { lossMask: [1, 0, 1], rewards: [0, 0, 1], groupId: 0 };
  const { returns } = estimateAdvantages('reinforce_pp', [sequence], { gamma: 0.5 });
  t.ok(difference(returns, [closed['rpp_returns_g.5_mask101']]) < 1e-6);
});

t.test('closed form: GiGPO', async t => {
  const pair = [1, 0].map((reward, i) => ({
    lossMask: [1, 1],
    rewards: [0, reward],
    turnEnds: [0, 1],
    states: ['start', `after ${i}`],
    groupId: 0,
  }));
  for (const [key, stdNormalize] of [
    ['gigpo_mean_norm_w1', false],
    ['gigpo_mean_std_w1', true],
  ] as const) {
    const found = estimateAdvantages('gigpo', pair, { gamma: 0.9, stdNormalize }).advantages;
    t.ok(difference(found, [closed[key].A, closed[key].B]) < 1e-6, key);
  }
});
