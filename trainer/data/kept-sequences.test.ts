import t from 'tap';
import { Random } from '../../shared/random.ts';
import { settingsOf } from '../config/settings.test-data.ts';
import type { RunSettings } from '../config/settings.ts';
import type { Episode } from '../rollout/episode.ts';
import { fillBatch } from '../training/update/update.ts';
import { episodeOf, turnOf } from './episodes.test-data.ts';
import { filterEpisodes, keptSequences, mergeFiltered } from './filtering.ts';

/** Groups of one-token episodes with these returns. */
const groupsOf = (returns: readonly (readonly number[])[]) =>
  returns.flatMap((group, groupId) =>
    group.map((reward, member) =>
      episodeOf({
        episodeId: `${groupId}.${member}`,
        groupId,
        member,
        tokenIds: Int32Array.of(1, 2),
        lossMask: Uint8Array.of(0, 1),
        values: new Float32Array(2),
        turns: [turnOf({ reward, tokens: [1, 2] })],
      }),
    ),
  );
const grpo = (filter: { [key: string]: string | number | boolean } = {}) =>
  settingsOf({ policy: { value_head: false }, algorithm: { advantage: 'dr_grpo', filter } });
const batchOf = (episodes: readonly Episode[], settings: RunSettings) =>
  fillBatch(
    keptSequences(filterEpisodes(episodes, settings), settings, { actionTokens: new Map() }),
    settings.algorithm.filter.fill,
    settings.algorithm.mini_batch_size,
    Random.fromSeed(1),
  );
const advantagesOf = (episodes: readonly Episode[], settings: RunSettings) =>
  batchOf(episodes, settings).map(({ advantages }) => advantages[1]);

t.test('groups without spread are dropped whole where asked, and metrics count them', async t => {
  const episodes = groupsOf([
    [0, 1],
    [1, 1],
    [0, 2],
  ]);
  t.same(advantagesOf(episodes, grpo()), [-0.5, 0.5, 0, 0, -1, 1]);
  const settings = grpo({ include_zero: false, strategy: 'top_p' });
  t.same(advantagesOf(episodes, settings), [-0.5, 0.5, -1, 1]);
  const kept = filterEpisodes(episodes, settings);
  t.equal(kept.kept.length, 2);
  t.match(kept.metrics, { 'rollout/filter_kept_count': 2, 'rollout/filter_zero_count': 1 });
  t.ok(Math.abs(kept.groupStd - (Math.SQRT1_2 + 0 + Math.SQRT2) / 3) < 1e-12, 'before filtering');
});

t.test('the advantages of a filtered batch are scaled where asked, and nothing else', async t => {
  const episodes = groupsOf([
    [0, 1],
    [1, 1],
  ]);
  const filter = { include_zero: false, strategy: 'top_p', loss_scaling: 'linear' };
  t.same(
    batchOf(episodes, grpo(filter)).map(({ advantages, weight }) => [advantages[1], weight ?? 1]),
    [
      [-0.25, 1],
      [0.25, 1],
    ],
  );
});

t.test('an empty selection makes an empty batch', async t => {
  const filter = { include_zero: false, strategy: 'top_p' };
  t.same(batchOf(groupsOf([[1, 1]]), grpo(filter)), []);
  t.same(batchOf([], grpo()), []);
});

t.test('returns are normalized over all episodes before groups go', async t => {
  const settings = settingsOf({
    algorithm: {
      whiten: false,
      reward_scale: 2,
      reward_normalization: { grouping: 'batch', method: 'mean' },
      filter: { strategy: 'top_k_abs', value: 1 },
    },
  });
  const batch = batchOf(
    groupsOf([
      [0, 1],
      [0, 3],
    ]),
    settings,
  );
  t.same(
    batch.map(({ returns }) => returns![1]),
    [-2, 4],
  );
});

t.test('mini-batches are made whole as asked', async t => {
  const episodes = groupsOf([
    [0, 1],
    [1, 3],
    [0, 2],
  ]);
  const filled = (fill: string) =>
    batchOf(
      episodes,
      settingsOf({
        policy: { value_head: false },
        algorithm: { advantage: 'dr_grpo', mini_batch_size: 4, filter: { fill } },
      }),
    );
  const weights = (fill: string) => filled(fill).map(({ weight = 1 }) => weight);
  t.same(weights('none'), [1, 1, 1, 1, 1, 1]);
  t.same(weights('copy'), [1, 1, 1, 1, 1, 1, 1, 1]);
  t.same(weights('delete'), [1, 1, 1, 1]);
  t.same(weights('pad'), [1, 1, 1, 1, 1, 1, 0, 0]);
});

t.test('several collections of an iteration count as one', async t => {
  const settings = grpo({ include_zero: false, strategy: 'top_p' });
  const round = (returns: readonly (readonly number[])[]) => filterEpisodes(groupsOf(returns), settings);
  const rounds = [
    round([
      [0, 1],
      [1, 1],
    ]),
    round([
      [1, 1],
      [2, 2],
    ]),
    round([[0, 3]]),
  ];
  const merged = mergeFiltered(rounds);
  const whole = round([
    [0, 1],
    [1, 1],
    [1, 1],
    [2, 2],
    [0, 3],
  ]);
  t.equal(merged.kept.length, 2);
  t.equal(merged.groups, 5);
  t.ok(Math.abs(merged.groupStd - whole.groupStd) < 1e-12);
  t.same(Object.keys(merged.metrics).sort(), Object.keys(whole.metrics).sort());
  for (const [name, value] of Object.entries(whole.metrics)) {
    t.ok(Math.abs(merged.metrics[name] - value) < 1e-12, name);
  }
});

t.test('an update learns from the samples with the largest advantages, of either sign', async t => {
  const episodes = groupsOf([
    [0, 1],
    [0, 0],
    [0, 4],
  ]);
  const shared = (sample_share: number) =>
    settingsOf({ policy: { value_head: false }, algorithm: { advantage: 'dr_grpo', sample_share } });
  t.same(advantagesOf(episodes, shared(1)), [-0.5, 0.5, 0, 0, -2, 2]);
  t.same(advantagesOf(episodes, shared(0.5)), [-0.5, -2, 2], 'of equals the first');
  t.same(advantagesOf(episodes, shared(0.6)), [-0.5, 0.5, -2, 2], 'rounded up');
  t.same(advantagesOf(episodes, shared(0.01)), [-2], 'at least one');
});
