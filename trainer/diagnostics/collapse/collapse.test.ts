import t from 'tap';
import { episodeOf, turnOf } from '../../data/episodes.test-data.ts';
import type { ContinuationRequest } from '../../policy/policy.ts';
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

/** log p of a thought behind a prompt. */
type LogProb = (prompt: ArrayLike<number>, thought: ArrayLike<number>) => number;
/** A thought is likely behind the prompt that its number belongs to. */
const informed: LogProb = (prompt, thought) => (prompt[0] + 10 === thought[0] ? -1 : -9);
const uninformed: LogProb = () => -1;

const scorer = (logProb: LogProb) => ({
  requests: [] as ContinuationRequest[],
  async scoreContinuations(requests: readonly ContinuationRequest[]) {
    this.requests.push(...requests);
    return requests.map(({ prompt, continuations }) =>
      Float64Array.from(continuations, thought => logProb(prompt, thought)),
    );
  },
});

const parts = (policy: CollapseParts['policy'], over: Partial<CollapseParts> = {}): CollapseParts => ({
  policy,
  decode,
  part: 'thought',
  samples: 64,
  maxTokens: 1e6,
  stdEps: 1e-3,
  emaDecay: 0.9,
  thresholds: { entropy: 0.1, mi_share: 0.1 },
  seed: 7,
  temperature: 1,
  maxSequenceLength: 8,
  clock: () => 0,
  ...over,
});
const episodes = [20, 21, 22].map((prompt, group) => played(group, [prompt], prompt + 10));
const FIRST = 'collapse_first_turn_sample';
const SERIES = [FIRST, 'collapse_trajectory_sample'];

t.test(
  'thoughts that fit their own prompt only are diverse; those that fit every one are a template',
  async t => {
    const policy = scorer(informed);
    const diverse = await measureCollapse(parts(policy), episodes, 5);
    t.equal(policy.requests.length, 3, 'each prompt once for both series');
    const { metrics } = diverse;
    t.ok(Math.abs(metrics[`${FIRST}/mi_upper_bound`] - Math.log(3)) < 1e-9);
    for (const series of SERIES) {
      t.ok(metrics[`${series}/mi_seq_share`] > 0.99 || series !== FIRST);
      t.equal(metrics[`${series}/retrieval_accuracy`], 1);
      t.equal(metrics[`${series}/rows`], 3);
      t.equal(metrics[`${series}/prompt_mismatch`], 0);
    }
    t.equal(metrics[`${FIRST}/scored_tokens`], 3 * 2 + 3 * 3);
    t.equal(metrics[`${SERIES[1]}/scored_tokens`], 0, 'the first series has computed them');
    t.equal(metrics['collapse/valid_thinking_rate'], 1);
    t.equal(metrics['collapse/regime'], 0);
    t.same(diverse.alarms, []);
    let { memory } = diverse;
    for (const [step, regime] of [
      [10, 0],
      [15, 1],
    ]) {
      const template = await measureCollapse(parts(scorer(uninformed)), episodes, step, memory);
      t.ok(Math.abs(template.metrics[`${FIRST}/mi_estimate`]) < 1e-6);
      t.equal(template.metrics['collapse/regime'], regime);
      t.equal(template.alarms.length, regime);
      ({ memory } = template);
    }
    t.same(memory.watch?.history, [
      { step: 5, regime: 'diverse' },
      { step: 15, regime: 'template_collapse' },
    ]);
  },
);

/** A policy that writes one word of a fixed distribution over four, or repeats what it sees. */
t.test(
  'toy policies: copying has all the information, a fixed distribution none, one string neither',
  async t => {
    const observations = Array.from({ length: 8 }, (_, i) => 20 + i);
    const run = (thoughtOf: (observation: number, i: number) => number, logProb: LogProb) =>
      measureCollapse(
        parts(scorer(logProb)),
        observations.map((observation, i) => played(i, [observation], thoughtOf(observation, i))),
        1,
      );
    const copies = await run(
      observation => observation,
      (prompt, thought) => (prompt[0] === thought[0] ? Math.log(0.999) : -50),
    );
    t.ok(copies.metrics[`${FIRST}/mi_seq_share`] > 0.999);
    t.equal(copies.metrics[`${FIRST}/retrieval_accuracy`], 1);
    const fixed = await run(
      (_, i) => 30 + (i % 4),
      () => Math.log(1 / 4),
    );
    t.ok(Math.abs(fixed.metrics[`${FIRST}/mi_seq_estimate`]) < 1e-9);
    t.ok(Math.abs(fixed.metrics[`${FIRST}/conditional_entropy_est`] - Math.log(4)) < 1e-9);
    t.equal(fixed.metrics['collapse/regime'], 1, 'template collapse');
    const single = await run(
      () => 30,
      () => 0,
    );
    t.ok(Math.abs(single.metrics[`${FIRST}/conditional_entropy_est`]) < 1e-9);
    t.equal(single.metrics['collapse/regime'], 3, 'low-entropy collapse');
  },
);

t.test('moving averages and seconds continue from what is remembered', async t => {
  let now = 0;
  const clock = () => now++;
  const remembered = {
    series: { [FIRST]: { marginalStd: 4, marginalStdSeq: 2 } },
    seconds: { firstTurn: 5, multiTurn: 7 },
  };
  const { metrics } = await measureCollapse(parts(scorer(informed), { clock }), episodes, 10, remembered);
  const expected = 0.9 * 4 + 0.1 * metrics[`${FIRST}/marginal_std`];
  t.ok(Math.abs(metrics[`${FIRST}/marginal_std_ema`] - expected) < 1e-9);
  t.equal(metrics['timing_s/collapse_first_turn_step'], 1);
  t.equal(metrics['timing_s/collapse_first_turn_total'], 6);
  t.equal(metrics['timing_s/collapse_total'], 13);
});

t.test('prompts without room for the longest thought are left out and counted', async t => {
  const long = played(3, [23, 0, 0, 0, 0, 0, 0], 33);
  const policy = scorer(informed);
  const { metrics } = await measureCollapse(parts(policy), [...episodes, long], 5);
  t.equal(metrics[`${FIRST}/too_long`], 1);
  t.ok(Math.abs(metrics[`${FIRST}/mi_upper_bound`] - Math.log(3)) < 1e-9);
  t.ok(policy.requests.every(({ prompt }) => prompt.length < 8));
});

t.test('a limit of tokens takes fewer samples; one without room for two measures nothing', async t => {
  const many = Array.from({ length: 20 }, (_, i) => played(i, [20 + i], 30 + i));
  const tokensOf = async (maxTokens: number) => {
    const policy = scorer(informed);
    const { metrics } = await measureCollapse(parts(policy, { maxTokens, samples: 'all' }), many, 5);
    const sent = policy.requests.reduce(
      (sum, { prompt, continuations }) => sum + prompt.length + continuations.length,
      0,
    );
    t.equal(sent, metrics[`${FIRST}/scored_tokens`] + metrics[`${SERIES[1]}/scored_tokens`]);
    t.ok(sent <= maxTokens);
    return { metrics, rows: metrics[`${FIRST}/rows`] };
  };
  t.equal((await tokensOf(1e6)).rows, 20);
  const { rows } = await tokensOf(150);
  t.ok(rows > 2 && rows < 20, `${rows} rows`);
  const nothing = await tokensOf(5);
  t.equal(nothing.rows, 0);
  t.notOk(`${FIRST}/mi_estimate` in nothing.metrics);
});

t.test('members of a group that saw another prompt are counted', async t => {
  const odd = { ...played(0, [25], 35), groupId: 0 };
  const { metrics } = await measureCollapse(parts(scorer(informed)), [...episodes, odd], 5);
  t.equal(metrics[`${FIRST}/prompt_mismatch`], 1);
  t.equal(metrics[`${FIRST}/columns`], 4);
});

t.test('a policy without a single thought has nothing to compare', async t => {
  const silent = episodeOf({
    tokenIds: Int32Array.of(20, THINK, 2, 3, 5, 4),
    turns: [turnOf({ tokens: [2, 6], rawResponse: '<think></think><answer>Up</answer>' })],
  });
  const policy = scorer(informed);
  const { metrics, memory } = await measureCollapse(parts(policy), [silent, silent], 5);
  t.equal(metrics['collapse/valid_thinking_rate'], 0);
  t.notOk(Object.keys(metrics).some(name => name.endsWith('mi_estimate')));
  t.same([policy.requests, memory.series, memory.watch], [[], {}, undefined]);
});

t.test('policies without thinking are measured by their actions under separate names', async t => {
  const acted = [20, 21, 22].map((prompt, groupId) => {
    const response = [prompt + 10, 4];
    return episodeOf({
      groupId,
      tokenIds: Int32Array.of(prompt, 3, ...response),
      turns: [turnOf({ tokens: [2, 4], rawResponse: `<answer>${decode(response)}` })],
    });
  });
  const { metrics, memory } = await measureCollapse(parts(scorer(informed), { part: 'actions' }), acted, 5);
  t.ok(metrics['collapse_action_first_turn_sample/mi_seq_share'] > 0.99);
  t.ok('collapse_action_trajectory_sample/rows' in metrics);
  t.notOk(Object.keys(metrics).some(name => /^collapse(_first|_trajectory|\/)/.test(name)));
  t.equal(memory.watch, undefined);
});
