import t from 'tap';
import { makeBatch } from './batch.ts';
import { episodeOf, turnOf } from './episodes.test-data.ts';
import { settingsOf } from './settings.test-data.ts';

/** Groups of one-token episodes with these returns. */
const groupsOf = (returns: readonly (readonly number[])[]) =>
  returns.flatMap((group, groupId) =>
    group.map((reward, member) =>
      episodeOf({
        episodeId: `${groupId}.${member}`,
        groupId,
        member,
        tokenIds: Int32Array.of(1, 2),
        mask: Uint8Array.of(0, 1),
        values: new Float32Array(2),
        turns: [turnOf({ reward, tokens: [1, 2] })],
      }),
    ),
  );
const grpo = (filter: { [key: string]: string | number | boolean } = {}) =>
  settingsOf({ policy: { value_head: false }, algorithm: { advantage: 'dr_grpo', filter } });
const advantagesOf = (batch: ReturnType<typeof makeBatch>) =>
  batch.sequences.map(({ advantages }) => advantages[1]);

t.test('groups without spread are dropped whole where asked, and metrics tell', async t => {
  const episodes = groupsOf([
    [0, 1],
    [1, 1],
    [0, 2],
  ]);
  const all = makeBatch(episodes, grpo(), new Map());
  t.same(advantagesOf(all), [-0.5, 0.5, 0, 0, -1, 1]);
  const kept = makeBatch(episodes, grpo({ include_zero: false, strategy: 'top_p' }), new Map());
  t.same(advantagesOf(kept), [-0.5, 0.5, -1, 1]);
  t.equal(kept.keptGroups, 2);
  t.match(kept.metrics, { 'rollout/filter_kept_count': 2, 'rollout/filter_zero_count': 1 });
  t.ok(Math.abs(kept.groupStd - (Math.SQRT1_2 + 0 + Math.SQRT2) / 3) < 1e-12, 'before filtering');
});

t.test('the loss of a filtered batch is scaled where asked', async t => {
  const episodes = groupsOf([
    [0, 1],
    [1, 1],
  ]);
  const filter = { include_zero: false, strategy: 'top_p', loss_scaling: 'linear' };
  t.same(
    makeBatch(episodes, grpo(filter), new Map()).sequences.map(({ weight }) => weight),
    [0.5, 0.5],
  );
});

t.test('nothing kept is an empty batch', async t => {
  const filter = { include_zero: false, strategy: 'top_p' };
  const batch = makeBatch(groupsOf([[1, 1]]), grpo(filter), new Map());
  t.same([batch.sequences, batch.keptGroups], [[], 0]);
  t.same(makeBatch([], grpo(), new Map()).sequences, []);
});

t.test('returns are normalised over all episodes before groups go', async t => {
  const settings = settingsOf({
    algorithm: {
      whiten: false,
      reward_scale: 2,
      reward_normalization: { grouping: 'batch', method: 'mean' },
      filter: { strategy: 'top_k_abs', value: 1 },
    },
  });
  const batch = makeBatch(
    groupsOf([
      [0, 1],
      [0, 3],
    ]),
    settings,
    new Map(),
  );
  t.same(
    batch.sequences.map(({ returns }) => returns![1]),
    [-2, 4],
  );
});
