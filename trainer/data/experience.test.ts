import t from 'tap';
import type { Episode } from '../rollout/episode.ts';
import { episodeOf, turnOf } from './episodes.test-data.ts';
import { type ExperienceSettings, trainingSequences } from './experience.ts';

const settings: ExperienceSettings = {
  advantage: 'gae',
  gamma: 1,
  lambda: 1,
  turnLambda: 1,
  highLevelGamma: 1,
  stepWeight: 1,
  whiten: false,
  stdNormalize: true,
  acrossTurns: true,
  acrossSamples: false,
  rewardScale: 1,
  rewardAtTurns: true,
  softReweight: false,
  lengthWeight: false,
  zeroTask: false,
  overlongMask: false,
};
const sequencesOf = (
  episodes: readonly Episode[],
  some: ExperienceSettings,
  others: Parameters<typeof trainingSequences>[2] = {},
) =>
  trainingSequences(
    episodes.map(episode => ({ episode })),
    some,
    others,
  );
const rounded = (values: ArrayLike<number>) => Array.from(values, value => Number(value.toFixed(5)));

/** Two turns: prompt, two sampled tokens, observation, one sampled token. */
const twoTurns = (part: Partial<Episode> = {}) =>
  episodeOf({
    tokenIds: Int32Array.of(9, 1, 2, 8, 3),
    lossMask: Uint8Array.of(0, 1, 1, 0, 1),
    values: Float32Array.of(0, 0.5, 0.25, 0, 0.125),
    turns: [
      turnOf({ tokens: [1, 3], reward: 0.5, penalty: -0.25, state: 'a' }),
      turnOf({ tokens: [4, 5], reward: 1, state: 'b' }),
    ],
    ...part,
  });

t.test('rewards lie at the end of their turn, as the returns to go show', async t => {
  const [sequence] = sequencesOf([twoTurns()], settings);
  const returns = rounded(sequence.returns!);
  t.same([returns[1], returns[2], returns[4]], [1.25, 1.25, 1]);
  t.same(rounded(sequence.advantages)[1], 0.75);
  const [scaled] = sequencesOf([twoTurns()], { ...settings, rewardScale: 0.1 });
  t.equal(rounded(scaled.returns!)[1], 0.125);
});

t.test('reward components are added up by their weights, and gdpo sees each by itself', async t => {
  const rewardWeights = { reward: 1, format_penalty: 2, style: 10 };
  const episode = twoTurns({
    turns: [
      turnOf({ tokens: [1, 3], reward: 0.5, penalty: -0.25, rewards: { style: 0.1 } }),
      turnOf({ tokens: [4, 5], reward: 1 }),
    ],
  });
  const [sequence] = sequencesOf([episode], { ...settings, rewardWeights });
  t.equal(rounded(sequence.returns!)[1], 0.5 - 0.5 + 1 + 1);
  const twin = {
    ...episode,
    episodeId: 'twin',
    turns: [turnOf({ tokens: [1, 3] }), turnOf({ tokens: [4, 5], reward: 1.25 })],
  };
  const compared = sequencesOf([episode, twin], {
    ...settings,
    advantage: 'gdpo',
    rewardWeights: { reward: 0, format_penalty: 1, style: 0 },
  });
  t.ok(
    compared[0].advantages[1] < 0 && compared[1].advantages[1] > 0,
    'returns are alike, the format is not',
  );
});

t.test(
  'the cross-entropy weighs observations after the first response, next to sampled tokens or alone',
  async t => {
    const [sequence] = sequencesOf([twoTurns()], {
      ...settings,
      crossEntropy: { sampled: 0, observations: 0.5 },
    });
    t.same(sequence.crossEntropyWeights, Float32Array.of(0, 0, 0, 0.5, 0));
    const [mixed] = sequencesOf([twoTurns()], { ...settings, crossEntropy: { sampled: 1, observations: 0 } });
    t.same(mixed.crossEntropyWeights, Float32Array.of(0, 1, 1, 0, 1));
    const [plain] = sequencesOf([twoTurns()], settings);
    t.equal(plain.crossEntropyWeights, undefined);
  },
);

t.test('the token baseline weighs tokens by their off-policy weights', async t => {
  const pair = [
    twoTurns(),
    twoTurns({ episodeId: 'f', turns: [turnOf({ tokens: [1, 3] }), turnOf({ tokens: [4, 5] })] }),
  ];
  const scores = (values: readonly number[]) =>
    new Map(pair.map((episode, i) => [episode, new Float32Array(5).fill(values[i])]));
  const later = { squares: scores([0.5, 0.5]), proximal: scores([-0.5, -1]) };
  const run = (some: Partial<ExperienceSettings>) =>
    sequencesOf(pair, { ...settings, advantage: 'otb', ...some }, later).map(
      ({ advantages }) => rounded(advantages)[4],
    );
  const plain = run({});
  const weighed = run({ offPolicy: { kind: 'tis', cap: 10 } });
  t.ok([...plain, ...weighed].every(Number.isFinite));
  t.notSame(weighed, plain);
});

t.test(
  'agents are named by the info of the last step, else by the tag, and their baselines come back',
  async t => {
    const by = (agent: string | undefined, reward: number) =>
      twoTurns({
        episodeId: `${agent}`,
        turns: [turnOf({ tokens: [1, 3] }), turnOf({ tokens: [4, 5], reward, info: agent ? { agent } : {} })],
      });
    let baselines: Readonly<Record<string, number>> | undefined;
    const own = { ...settings, advantage: 'rae', decay: 0.5 };
    const sequences = sequencesOf([by('red', 1), by(undefined, 2)], own, {
      baselines: { red: 0.5 },
      onEstimate: found => {
        baselines = found.baselines;
      },
    });
    t.same(
      sequences.map(({ advantages }) => advantages[4]),
      [0.5, 2],
    );
    t.same(baselines, { red: 0.75, Lake: 1 });
  },
);

t.test('lambda 0 between turns stops the trace at the turn end', async t => {
  const [sequence] = sequencesOf([twoTurns()], { ...settings, turnLambda: 0 });
  t.equal(rounded(sequence.returns!)[1], 0.25 + 0.125, 'reward of the turn + value of the next');
});

t.test('a normalized return takes the place of the turn rewards', async t => {
  const [sequence] = trainingSequences([{ episode: twoTurns(), normalized: 3 }], settings);
  const returns = rounded(sequence.returns!);
  t.same([returns[1], returns[4]], [3, 3]);
});

t.test('a turn cut off before its first token gives its reward to the turn before', async t => {
  const episode = twoTurns();
  const turns = [...episode.turns, turnOf({ tokens: [5, 5], penalty: -0.5 })];
  const [sequence] = sequencesOf([{ ...episode, turns }], settings);
  t.equal(rounded(sequence.returns!)[4], 0.5);
});

t.test('samples of one episode all carry its return, and one without trained tokens is left out', async t => {
  const sample = (lossMask: number[]) => ({
    tokenIds: Int32Array.of(9, 1),
    lossMask: Uint8Array.from(lossMask),
    logProbs: new Float32Array(2),
    versions: new Int32Array(2),
  });
  const parted = (score: number, member: number) =>
    episodeOf({
      episodeId: `e${member}`,
      member,
      samples: [sample([0, 1]), sample([0, 1]), sample([0, 0])],
      turns: [turnOf({ tokens: [1, 2], sample: 0 }), turnOf({ tokens: [1, 2], sample: 1, reward: score })],
    });
  const sequences = sequencesOf([parted(1, 0), parted(0, 1)], { ...settings, advantage: 'dr_grpo' });
  t.same(
    sequences.map(sequence => sequence.advantages[1]),
    [0.5, 0.5, -0.5, -0.5],
  );
  t.equal(sequences[0].returns, undefined, 'no targets without a value head');
});

t.test(
  'rewards and values pass between samples where they make one chain, in any order of episodes',
  async t => {
    const sample = (lossMask: number[], value: number) => ({
      tokenIds: Int32Array.of(9, 1),
      lossMask: Uint8Array.from(lossMask),
      logProbs: new Float32Array(2),
      values: Float32Array.of(0, value),
      versions: new Int32Array(2),
    });
    const turns = [
      turnOf({ tokens: [1, 2], sample: 0, reward: 1 }),
      turnOf({ tokens: [1, 2], sample: 1, reward: 2 }),
      turnOf({ tokens: [1, 2], sample: 2, reward: 4 }),
      turnOf({ tokens: [1, 2], sample: 3, reward: 8 }),
      turnOf({ tokens: [2, 2], sample: 3, penalty: -16 }),
    ];
    const masks = [
      [0, 1],
      [0, 1],
      [0, 0],
      [0, 1],
    ]; // prettier-ignore
    const parted = (episodeId: string, values: readonly number[]) =>
      episodeOf({ episodeId, samples: masks.map((mask, i) => sample(mask, values[i])), turns });
    const one = parted('one', [0.5, 0.25, 9, 0.125]);
    const two = parted('two', [0, 0, 0, 0]);
    const run = (turnLambda: number, more: Partial<ExperienceSettings> = {}) =>
      sequencesOf([one, two], { ...settings, acrossSamples: true, turnLambda, ...more });
    const column = (sequences: ReturnType<typeof run>, name: 'advantages' | 'returns') =>
      sequences.map(sequence => rounded(sequence[name]!)[1]);
    t.same(column(run(1), 'returns'), [-1, -2, -8, -1, -2, -8], 'rewards to go');
    t.same(column(run(1), 'advantages').slice(0, 3), [-1.5, -2.25, -8.125]);
    t.same(column(run(0), 'returns').slice(0, 3), [1 + 0.25, 6 + 0.125, -8], 'the next value follows');
    t.same(column(run(1, { rewardAtTurns: false }), 'returns').slice(0, 3), [-1, -1, -1]);
    const normalized = trainingSequences([{ episode: one, normalized: 3 }], {
      ...settings,
      acrossSamples: true,
    });
    t.same(column(normalized, 'returns'), [3, 3, 3], 'a normalized return counts once');
    t.same(column(run(1, { acrossSamples: false }), 'returns').slice(0, 3), [-1, -1, -1]);
  },
);

t.test('entropy is rewarded on the tokens named, never on prompts', async t => {
  const entropyTokens = new Map([['Lake', new Set([2, 9])]]);
  const [sequence] = sequencesOf([twoTurns()], { ...settings, entropyTokens });
  t.same(Array.from(sequence.entropyMask!), [0, 0, 1, 0, 0]);
});

t.test('constrained responses carry the grammar of their tag', async t => {
  t.equal(sequencesOf([twoTurns()], { ...settings, constrained: true })[0].grammar, 'Lake');
  t.equal(sequencesOf([twoTurns()], settings)[0].grammar, undefined);
});

t.test('episodes without trained tokens give no sequences', async t => {
  t.same(sequencesOf([], settings), []);
  t.same(sequencesOf([episodeOf()], settings), []);
});

t.test('KL in the reward is taken off at every sampled token', async t => {
  const episode = twoTurns({ logProbs: Float32Array.of(0, -1, -2, 0, -3) });
  const reference = new Map([[episode, Float32Array.of(9, -1.5, -1, 9, -3)]]);
  const klInReward = { estimator: 'k1' as const, coefficient: 0.5 };
  const [sequence] = sequencesOf([episode], { ...settings, klInReward }, { reference });
  const returns = rounded(sequence.returns!);
  t.same([returns[1], returns[2], returns[4]], [1.25 - 0.25 + 0.5, 1.25 + 0.5, 1]);
  t.equal(sequence.referenceLogProbs, reference.get(episode));
});

t.test('log-probabilities of older weights go with their sequence', async t => {
  const episode = twoTurns();
  const logProbs = new Float32Array(5).fill(-0.5);
  const [sequence] = sequencesOf([episode], settings, { proximal: new Map([[episode, logProbs]]) });
  t.equal(sequence.proximalLogProbs, logProbs);
  t.throws(() => sequencesOf([episode], settings, { proximal: new Map() }), /was not scored/);
});

t.test('advantages are reweighed where asked; value targets are not', async t => {
  const pair = (groupId: number, low: number, high: number) =>
    [low, high].map((reward, member) =>
      twoTurns({
        episodeId: `${groupId}.${member}`,
        groupId,
        turns: [turnOf({ tokens: [1, 3] }), turnOf({ tokens: [4, 5], reward })],
      }),
    );
  const episodes = [...pair(0, 0, 2), ...pair(1, 0, 1)];
  const group = { ...settings, advantage: 'dr_grpo' };
  const firsts = (some: Partial<ExperienceSettings>) =>
    sequencesOf(episodes, { ...group, ...some }).map(({ advantages }) => advantages[1]);
  t.same(firsts({}), [-1, 1, -0.5, 0.5]);
  t.same(firsts({ softReweight: true }), [-1, 1, -0.25, 0.25]);
  t.same(firsts({ zeroTask: true }), [0, 0, 0, 0]);
  t.ok(firsts({ lengthWeight: true }).every((value, i) => Math.abs(value - firsts({})[i]) < 1e-6));
  const [, best] = sequencesOf(episodes, { ...group, zeroTask: true });
  t.equal(best.returns![1], 1);
});

t.test('an episode with a response that was cut off weighs nothing where asked', async t => {
  const cut = twoTurns({
    turns: [turnOf({ tokens: [1, 3], finishReason: 'length' }), turnOf({ tokens: [4, 5] })],
  });
  const weights = (overlongMask: boolean) =>
    sequencesOf([cut, twoTurns()], { ...settings, overlongMask }).map(({ weight }) => weight);
  t.same(weights(true), [0, undefined]);
  t.same(weights(false), [undefined, undefined]);
});

t.test('rewards at the last turn add up there, and the return of the episode stays', async t => {
  const episode = episodeOf({
    tokenIds: Int32Array.of(1, 2, 3, 4, 5),
    lossMask: Uint8Array.of(0, 1, 0, 1, 1),
    turns: [turnOf({ reward: 2, tokens: [1, 2] }), turnOf({ reward: 1, penalty: -0.5, tokens: [3, 5] })],
  });
  const advantages = (rewardAtTurns: boolean) =>
    Array.from(
      trainingSequences([{ episode }], {
        ...settings,
        advantage: 'reinforce_pp',
        acrossTurns: true,
        gamma: 1,
        whiten: false,
        rewardAtTurns,
      })[0].advantages,
    );
  const [early, late] = [advantages(true), advantages(false)];
  t.notSame(early, late);
  t.equal(late[1], late[4], 'every token leads to the same reward');
});

t.test('rejection sampling trains successes alone; the others still count in the advantages', async t => {
  const episodes = [
    twoTurns({ success: true }),
    twoTurns({ episodeId: 'f', member: 1, turns: [turnOf({ tokens: [1, 3] }), turnOf({ tokens: [4, 5] })] }),
  ];
  const grpo = { ...settings, advantage: 'dr_grpo' };
  const [all] = sequencesOf(episodes, grpo);
  const kept = sequencesOf(episodes, { ...grpo, onlySuccesses: true });
  t.equal(kept.length, 1);
  t.same(kept[0].advantages, all.advantages);
});

t.test('distillation rewards each token with log π_teacher − log π, and with nothing else', async t => {
  const episode = twoTurns({ logProbs: Float32Array.of(0, -1, -0.5, 0, -2) });
  const teacher = Float32Array.of(0, -0.25, -3, 0, -2);
  const [sequence] = sequencesOf(
    [episode],
    {
      ...settings,
      advantage: 'reinforce_pp',
      gamma: 0,
      rewardScale: 0,
      klInReward: { estimator: 'k1', coefficient: 1 },
    },
    { reference: new Map([[episode, teacher]]) },
  );
  t.same(rounded(sequence.advantages), [0, 0.75, -2.5, 0, 0]);
});

t.test(
  'the value of where an episode was cut counts at its last token, unless returns are whole',
  async t => {
    const episode = twoTurns({ truncation: 'environment' });
    const bootstrap = new Map([[episode, 2]]);
    const [plain] = sequencesOf([episode], settings);
    const [cut] = sequencesOf([episode], settings, { bootstrap });
    t.same(
      rounded(cut.returns!).map((value, i) => value - rounded(plain.returns!)[i]),
      [2, 2, 2, 2, 2],
    );
    const whole = trainingSequences([{ episode, normalized: 1 }], settings, { bootstrap });
    t.same(whole, trainingSequences([{ episode, normalized: 1 }], settings));
  },
);

t.test('estimators that go for success refuse an environment that reports none, by its id', async t => {
  const known = (success: boolean) =>
    twoTurns({
      episodeId: `e${success}`,
      success,
      turns: twoTurns().turns.map(turn => ({ ...turn, actions: ['x'], info: { success } })),
    });
  for (const advantage of ['graph_gpo', 'g2po']) {
    t.equal(sequencesOf([known(true), known(false)], { ...settings, advantage }).length, 2);
    t.throws(
      () => sequencesOf([twoTurns(), twoTurns({ episodeId: 'f' })], { ...settings, advantage }),
      new RegExp(`algorithm.advantage: ${advantage} goes for success, and FrozenLake-v0 reports none`),
    );
  }
  t.equal(sequencesOf([twoTurns()], { ...settings, advantage: 'gagpo' }).length, 1);
});
