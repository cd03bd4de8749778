import t from 'tap';
import { validateConfig } from '../../../shared/config.ts';
import type { JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { RunSettings } from '../../config/settings.ts';
import { episodeOf, turnOf } from '../../data/episodes.test-data.ts';
import type { ContinuationRequest } from '../../policy/policy.ts';
import {
  type CollapseParts,
  countScoredTokens,
  crossTable,
  measureCollapse,
  planCrossScores,
  reasonedEpisode,
} from './collapse.ts';
import {
  fittingSamples,
  type ReasonedEpisode,
  type ReasoningSample,
  sampleFirstTurns,
  sampleTrajectories,
  thinkingMetrics,
} from './collapse-metrics.ts';

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

const parts = (
  policy: CollapseParts['policy'],
  {
    collapse = {},
    think = true,
    clock = () => 0,
  }: { collapse?: JsonObject; think?: boolean; clock?: () => number } = {},
): CollapseParts => {
  const settings = validateConfig(
    {
      seed: 7,
      tags: { Lake: { env_id: 'FrozenLake-v0' } },
      rollout: { think, temperature: 1 },
      diagnostics: { collapse: { thresholds: { entropy: 0.1, mi_share: 0.1 }, ...collapse } },
    },
    RunSettings,
  );
  return { settings: { ...settings, policy: { ...settings.policy, context: 8 } }, policy, decode, clock };
};
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
  const tokensOf = async (max_tokens: number) => {
    const policy = scorer(informed);
    const { metrics } = await measureCollapse(
      parts(policy, { collapse: { max_tokens, samples: 'all' } }),
      many,
      5,
    );
    const sent = policy.requests.reduce(
      (sum, { prompt, continuations }) => sum + prompt.length + continuations.length,
      0,
    );
    t.equal(sent, metrics[`${FIRST}/scored_tokens`] + metrics[`${SERIES[1]}/scored_tokens`]);
    t.ok(sent <= max_tokens);
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
  const { metrics, memory } = await measureCollapse(parts(scorer(informed), { think: false }), acted, 5);
  t.ok(metrics['collapse_action_first_turn_sample/mi_seq_share'] > 0.99);
  t.ok('collapse_action_trajectory_sample/rows' in metrics);
  t.notOk(Object.keys(metrics).some(name => /^collapse(_first|_trajectory|\/)/.test(name)));
  t.equal(memory.watch, undefined);
});

const turn = (prompt: number[], reasoning: number[]) => ({ prompt, reasoning });
const collapseSamplesEpisodes: ReasonedEpisode[] = [
  { groupId: 4, turns: [turn([1, 2], [10, 11]), turn([1, 2, 3], [12])] },
  { groupId: 4, turns: [turn([1, 2], [13])] },
  { groupId: 2, turns: [turn([5], []), turn([5, 6], [14])] },
  { groupId: 9, turns: [turn([7, 8, 9], [15, 16, 17])] },
];

t.test('sampling draws no first turns twice, and only turns with reasoning', async t => {
  const samples = sampleFirstTurns(collapseSamplesEpisodes, 2, Random.fromSeed(2));
  t.equal(samples.length, 2);
  t.not(samples[0].reasoning, samples[1].reasoning);
  const drawn = sampleTrajectories(collapseSamplesEpisodes, 4, Random.fromSeed(3));
  t.same(
    drawn.map(sample => sample.group),
    [0, 1, 2, 3],
  );
  t.ok(drawn.every(sample => sample.reasoning.length > 0));
});

t.test('thinking is counted over all turns and over first turns', async t => {
  t.same(thinkingMetrics(collapseSamplesEpisodes), {
    'collapse/valid_thinking_rate': 5 / 6,
    'collapse/first_turn_num_total': 4,
    'collapse/first_turn_num_valid': 3,
    'collapse/first_turn_valid_rate': 0.75,
  });
});

t.test('prompts without room for the longest reasoning do not fit', async t => {
  const samples = sampleFirstTurns(collapseSamplesEpisodes, 64, Random.fromSeed(1));
  const groups = (length: number) => fittingSamples(samples, length).map(sample => sample.group);
  t.same(groups(6).sort(), [4, 4, 9]);
  t.same(groups(5), [4, 4]);
});

const sample = (group: number, prompt: number[], reasoning: number[]): ReasoningSample => ({
  group,
  prompt,
  reasoning,
});
const firsts = [sample(4, [1, 2], [10, 11]), sample(4, [1, 2], [13]), sample(2, [7, 8, 9], [15, 16, 17])];

/** A number for each prompt and reasoning. */
const score = (prompt: ArrayLike<number>, reasoning: ArrayLike<number>) => -(100 * prompt[0] + reasoning[0]);
const scored = (requests: readonly ContinuationRequest[]) =>
  requests.map(({ prompt, continuations }) => continuations.map(ids => score(prompt, ids)));

t.test('every reasoning is scored behind every prompt; columns have the order of groups', async t => {
  const table = crossTable(firsts);
  t.same(table.matchedColumn, [1, 1, 0]);
  t.equal(table.mismatches, 0);
  const { requests, collect } = planCrossScores([table]);
  t.equal(requests.length, 2);
  const [scores] = collect(scored(requests));
  t.same(scores.perSequence, [
    [-710, -110],
    [-713, -113],
    [-715, -115],
  ]);
  t.same(scores.perToken[0], [-355, -55]);
  t.same(scores.prompts, [
    [7, 8, 9],
    [1, 2],
  ]);
  t.same(countScoredTokens([table]), [5 + 2 * 6]);
});

t.test("a member with a prompt other than its group's gets a column and is counted", async t => {
  const table = crossTable([...firsts, sample(4, [1, 3], [20]), sample(4, [1, 3], [21])]);
  t.same(table.columns, [
    [7, 8, 9],
    [1, 2],
    [1, 3],
  ]);
  t.same(table.matchedColumn, [1, 1, 0, 2, 2]);
  t.equal(table.mismatches, 2);
});

t.test(
  'equal prompts and equal reasonings go through the model once, and fill every row and column',
  async t => {
    const repeated = [
      sample(0, [1], [5, 6]),
      sample(1, [1], [5, 6]),
      sample(2, [2], [7]),
      sample(3, [1], [7]),
    ];
    const tables = [crossTable(repeated.slice(0, 3)), crossTable(repeated)];
    const { requests, collect } = planCrossScores(tables);
    t.same(
      requests.map(({ prompt, continuations }) => [Array.from(prompt), continuations.length]),
      [
        [[1], 2],
        [[2], 2],
      ],
    );
    t.same(countScoredTokens(tables), [2 + 2 * 3, 0], 'the second table has nothing new');
    const [, scores] = collect(scored(requests));
    t.same(
      scores.perSequence,
      repeated.map(({ reasoning }) => repeated.map(({ prompt }) => score(prompt, reasoning))),
    );
  },
);

t.test('a shared prompt saves what the specification says', async t => {
  const ids = (length: number, salt: number) => Array.from({ length }, (_, i) => 1000 * salt + i);
  const samples = Array.from({ length: 64 }, (_, i) => sample(i, ids(400, i), ids(100, 100 + i)));
  const [tokens] = countScoredTokens([crossTable(samples)]);
  t.equal(tokens, 435_200);
  t.ok((64 * 64 * 500) / tokens > 4.7);
});

const REASONED_EPISODE_WORDS = [
  '<think>',
  '</think>',
  '<answer>',
  '</answer>',
  'go ',
  'up ',
  'Up',
  '</thi',
  'nk>',
  'grid',
  ' ',
  '\n',
];
const reasonedEpisodeDecode = (ids: ArrayLike<number>) =>
  Array.from(ids, id => REASONED_EPISODE_WORDS[id]).join('');

/** An episode of one turn, its response primed with the opening tag. */
const reasonedEpisodePlayed = (response: number[]) => {
  const tokenIds = Int32Array.of(9, 0, ...response);
  const rawResponse = `<think>${reasonedEpisodeDecode(response)}`;
  return episodeOf({
    groupId: 3,
    tokenIds,
    turns: [turnOf({ rawResponse, tokens: [2, tokenIds.length] })],
  });
};
const reasoningOf = (response: number[]) =>
  Array.from(
    reasonedEpisode(reasonedEpisodePlayed(response), reasonedEpisodeDecode, 'thought').turns[0].reasoning,
  );

t.test('the prompt ends with the opening tag, the reasoning before the closing one', async t => {
  const { groupId, turns } = reasonedEpisode(
    reasonedEpisodePlayed([4, 5, 1, 2, 6, 3]),
    reasonedEpisodeDecode,
    'thought',
  );
  t.equal(groupId, 3);
  t.same(Array.from(turns[0].prompt), [9, 0]);
  t.same(Array.from(turns[0].reasoning), [4, 5]);
});

t.test('a closing tag of several tokens is no part of it', async t => {
  t.same(reasoningOf([4, 5, 4, 7, 8, 2, 6, 3]), [4, 5, 4]);
});

t.test('empty thoughts and malformed answers have none', async t => {
  t.same(reasoningOf([1, 2, 6, 3]), []);
  t.same(reasoningOf([4, 5, 2, 6, 3]), []);
  t.same(reasoningOf([4, 5, 1, 6]), []);
});

t.test('a turn is looked up in the sample that holds it', async t => {
  const first = reasonedEpisodePlayed([4, 1, 2, 6, 3]);
  const second = reasonedEpisodePlayed([5, 5, 1, 2, 6, 3]);
  const { turns } = reasonedEpisode(
    { ...second, samples: [first, second], turns: [first.turns[0], { ...second.turns[0], sample: 1 }] },
    reasonedEpisodeDecode,
    'thought',
  );
  t.same(
    turns.map(({ reasoning }) => Array.from(reasoning)),
    [[4], [5, 5]],
  );
});

t.test('white space around the thought is no part of it', async t => {
  t.same(reasoningOf([10, 11, 4, 10, 5, 11, 1, 2, 6, 3]), [4, 10, 5]);
  t.same(reasoningOf([10, 11, 1, 2, 6, 3]), []);
});

t.test('policies without thinking are measured by their actions', async t => {
  const actionsOf = (response: number[]) => {
    const tokenIds = Int32Array.of(9, 2, ...response);
    const rawResponse = `<answer>${reasonedEpisodeDecode(response)}`;
    const turns = [turnOf({ rawResponse, tokens: [2, tokenIds.length] })];
    const reasoned = reasonedEpisode(episodeOf({ tokenIds, turns }), reasonedEpisodeDecode, 'actions');
    return Array.from(reasoned.turns[0].reasoning);
  };
  t.same(actionsOf([6, 10, 5, 3]), [6, 10, 5]);
  t.same(actionsOf([3]), []);
  t.same(actionsOf([6, 5]), []);
});
