import t from 'tap';
import { unbiasedStd } from '../algorithms/statistics.ts';
import { filterSettings } from '../config/derived.ts';
import type { Episode } from '../rollout/episode.ts';
import { tinySettings } from '../training/runs.test-data.ts';
import { episodeOf, turnOf } from './episodes.test-data.ts';
import { filterEpisodes, filterGroups, lossScale } from './filtering.ts';

const settings = tinySettings('http://127.0.0.1:1', '/tmp', 'x', {
  algorithm: { filter: { strategy: 'top_k', value: 0.5, score: 'reward_std' } },
});
const groupOf = (groupId: number, returns: readonly number[], more: Partial<Episode> = {}): Episode[] =>
  returns.map((reward, member) =>
    episodeOf({ groupId, member, episodeId: `${groupId}.${member}`, turns: [turnOf({ reward })], ...more }),
  );

t.test('groups that continue earlier episodes are filtered apart from the others', async t => {
  const prefix = { turns: 0, kind: 'head_start' as const };
  const episodes = [
    ...groupOf(0, [0, 0.1]),
    ...groupOf(1, [0, 0.2]),
    ...groupOf(2, [0, 5], { prefix }),
    ...groupOf(3, [0, 9], { prefix }),
  ];
  const { kept, groups, groupStd, metrics, scored } = filterEpisodes(episodes, settings);
  t.same(
    kept.map(([{ episode }]) => episode.groupId),
    [1, 3],
    'the wider ones of each kind',
  );
  t.equal(groups, 4);
  t.same(
    scored.map(({ episodes }) => episodes[0].groupId),
    [0, 1, 2, 3],
  );
  t.ok(
    Math.abs(groupStd - (unbiasedStd([0, 0.1]) + unbiasedStd([0, 0.2])) / 2) < 1e-12,
    'of the others alone',
  );
  t.match(metrics, { 'rollout/filter_kept_ratio': 0.5, 'prefix/filter_kept_ratio': 0.5 });
  const alone = filterEpisodes(episodes.slice(0, 4), settings);
  t.notOk('prefix/filter_kept_ratio' in alone.metrics);
  t.equal(metrics['rollout/in_group_reward_std'], alone.metrics['rollout/in_group_reward_std']);
});

t.test('leaves of a tree count by their shares in the score of its group', async t => {
  const leaf = (nodes: string[], reward: number, member: number) =>
    episodeOf({
      nodes,
      member,
      episodeId: `${member}`,
      turns: nodes.map((_, i) => turnOf({ reward: i ? reward : 0 })),
    });
  const episodes = [leaf(['0', '0.0'], 1, 0), leaf(['0', '0.1'], 0, 1), leaf(['1', '1'], 0, 2)];
  const { scored } = filterEpisodes(episodes, settings);
  // Shares ¼, ¼, ½: mean ¼, Σw(x − m)² = 3/16, 1 − Σw² = 5/8.
  t.ok(Math.abs(scored[0].score - Math.sqrt(3 / 16 / (5 / 8))) < 1e-12);
  const even = { rewards: [1, 0, 3, 0.5] };
  const [plain, weighed] = [even, { ...even, shares: [0.25, 0.25, 0.25, 0.25] }].map(
    group => filterGroups([group], filterSettings(settings)).scores[0],
  );
  t.ok(Math.abs(plain - weighed) < 1e-12, 'equal shares change nothing');
});

t.test('the fewer groups are kept, the smaller the step', async t => {
  t.equal(lossScale('none', 0.25), 1);
  t.equal(lossScale('linear', 0.25), 0.25);
  t.equal(lossScale('sqrt', 0.25), 0.5);
  t.throws(() => lossScale('square' as 'sqrt', 0.25), {
    message: 'no loss scaling "square"; choose one of none, linear, sqrt',
  });
});
