import t from 'tap';
import type { RunSettings } from '../config/settings.ts';
import type { ScoreRequest } from '../policy/policy.ts';
import { episodeOf, turnOf } from './episodes.test-data.ts';
import { scoreAfterDemonstrations } from './scoring.ts';

const settings = {
  rollout: { temperature: 0.5, constrained: false, max_model_len: null },
  policy: { context: 6 },
  algorithm: { reward_components: null },
} as unknown as RunSettings;

const member = (ids: readonly number[], success: boolean, reward = 0, groupId = 0) =>
  episodeOf({
    tokenIds: Int32Array.from(ids),
    lossMask: Uint8Array.from(ids, (_, i) => (i > 0 ? 1 : 0)),
    success,
    groupId,
    turns: [turnOf({ reward })],
  });

/** Scores each token with its own id, so that it shows which tokens a score belongs to. */
function policy() {
  const asked: ScoreRequest[] = [];
  return {
    asked,
    score: async (requests: readonly ScoreRequest[]) => {
      asked.push(...requests);
      return requests.map(({ tokenIds, lossMask }) => {
        const logProbs = Float32Array.from(tokenIds, (id, i) => (lossMask[i] ? id : 0));
        return { logProbs, entropies: new Float32Array(tokenIds.length) };
      });
    },
  };
}

t.test('each episode is scored behind the best success of its group, another one than itself', async t => {
  const best = member([1, 2, 3], true, 2);
  const good = member([4, 5], true, 1);
  const failed = member([6, 7, 8], false);
  const scorer = policy();
  const found = await scoreAfterDemonstrations(scorer, [good, best, failed], settings);
  t.same(
    scorer.asked.map(({ tokenIds }) => [...tokenIds]),
    [
      [1, 2, 3, 4, 5],
      [4, 5, 1, 2, 3],
      [1, 2, 3, 6, 7, 8],
    ],
  );
  t.same(scorer.asked[0].lossMask, Uint8Array.of(0, 0, 0, 0, 1), 'the demonstration is not scored');
  t.same(found.reference.get(failed), Float32Array.of(0, 7, 8));
  t.equal(found.undemonstrated.size, 0);
});

t.test('without a success, or without room for it, a sample has no part', async t => {
  const alone = member([1, 2], true, 1, 0);
  const long = member([1, 2, 3, 4], true, 1, 1);
  const other = member([5, 6, 7], false, 0, 1);
  const scorer = policy();
  const { reference, undemonstrated } = await scoreAfterDemonstrations(
    scorer,
    [alone, long, other],
    settings,
  );
  t.same(scorer.asked, []);
  t.same([...undemonstrated], [alone, long, other]);
  t.same(reference.get(other), new Float32Array(3));
});
