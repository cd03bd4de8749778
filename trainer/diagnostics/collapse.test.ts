import t from 'tap';
import { episodeOf, turnOf } from '../data/episodes.test-data.ts';
import type { ScoreRequest } from '../policy/policy.ts';
import { type CollapseParts, measureCollapse } from './collapse.ts';

const THINK = 1;
const WORDS = ['', '<think>', '</think>', '<answer>', '</answer>', 'Up'];
const decode = (ids: ArrayLike<number>) => Array.from(ids, id => WORDS[id] ?? `w${id} `).join('');

/** An episode of one turn: a prompt, then a thought of one token. */
const played = (groupId: number, prompt: number[], thought: number) => {
  const response = [thought, 2, 3, 5, 4];
  const tokens = [prompt.length + 1, prompt.length + 1 + response.length] as const;
  return episodeOf({
    groupId,
    tokenIds: Int32Array.of(...prompt, THINK, ...response),
    turns: [turnOf({ tokens, rawResponse: `<think>${decode(response)}` })],
  });
};

/** Takes a thought for likely behind the prompt that its number belongs to, or behind any. */
const scorer = (informed: boolean) => ({
  requests: [] as ScoreRequest[],
  async score(requests: readonly ScoreRequest[]) {
    this.requests.push(...requests);
    return requests.map(({ tokenIds, lossMask }) => {
      const logProbs = Float32Array.from(lossMask, (on, t) => {
        if (!on) return 0;
        return informed && tokenIds[0] + 10 !== tokenIds[t] ? -9 : -1;
      });
      return { logProbs, entropies: logProbs };
    });
  },
});

const parts = (policy: CollapseParts['policy']): CollapseParts => ({
  policy,
  decode,
  samples: 64,
  seed: 7,
  temperature: 1,
  maxSequenceLength: 8,
});
const episodes = [20, 21, 22].map((prompt, group) => played(group, [prompt], prompt + 10));

t.test(
  'thoughts that fit their own prompt only are diverse; those that fit every one are a template',
  async t => {
    const informed = scorer(true);
    const diverse = await measureCollapse(parts(informed), episodes, 5);
    t.equal(informed.requests.length, 2 * 9, 'every thought behind every prompt, in both series');
    for (const series of ['collapse_first_turn_sample', 'collapse_trajectory_sample']) {
      t.ok(Math.abs(diverse.metrics[`${series}/mi_upper_bound`] - Math.log(3)) < 1e-9);
      t.ok(diverse.metrics[`${series}/mi_estimate`] > 0.99 * Math.log(3));
      t.equal(diverse.metrics[`${series}/retrieval_accuracy`], 1);
    }
    t.equal(diverse.metrics['collapse/valid_thinking_rate'], 1);
    t.same(diverse.memory.regime, { name: 'diverse', step: 5 });
    const template = await measureCollapse(parts(scorer(false)), episodes, 10, diverse.memory);
    t.ok(Math.abs(template.metrics['collapse_first_turn_sample/mi_estimate']) < 1e-6);
    t.same(template.memory.regime, { name: 'template_collapse', step: 10 });
  },
);

t.test('moving averages go on from what is remembered', async t => {
  const first = await measureCollapse(parts(scorer(true)), episodes, 5);
  const [name] = Object.keys(first.memory.series);
  const remembered = { series: { [name]: { marginalStd: 4, marginalStdSeq: 2 } } };
  const { metrics } = await measureCollapse(parts(scorer(true)), episodes, 10, remembered);
  t.ok(
    Math.abs(metrics[`${name}/marginal_std_ema`] - (0.9 * 4 + 0.1 * metrics[`${name}/marginal_std`])) < 1e-9,
  );
});

t.test('prompts without room for the longest thought are left out and counted', async t => {
  const long = played(3, [23, 0, 0, 0, 0, 0, 0], 33);
  const policy = scorer(true);
  const { metrics } = await measureCollapse(parts(policy), [...episodes, long], 5);
  t.equal(metrics['collapse_first_turn_sample/too_long'], 1);
  t.ok(Math.abs(metrics['collapse_first_turn_sample/mi_upper_bound'] - Math.log(3)) < 1e-9);
  t.ok(policy.requests.every(({ tokenIds }) => tokenIds.length <= 8));
});

t.test('a policy that does not think has nothing to compare', async t => {
  const silent = episodeOf({
    tokenIds: Int32Array.of(20, THINK, 2, 3, 5, 4),
    turns: [turnOf({ tokens: [2, 6], rawResponse: '<think></think><answer>Up</answer>' })],
  });
  const policy = scorer(true);
  const { metrics, memory } = await measureCollapse(parts(policy), [silent, silent], 5);
  t.equal(metrics['collapse/valid_thinking_rate'], 0);
  t.notOk(Object.keys(metrics).some(name => name.endsWith('mi_estimate')));
  t.same([policy.requests, memory], [[], { series: {}, regime: undefined }]);
});
