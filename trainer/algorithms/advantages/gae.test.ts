import t from 'tap';
import { estimateAdvantages } from './registry.ts';

const base = {
  groupId: 0,
  lossMask: [1, 1, 0, 1, 1],
  rewards: [0, 1, 0, 0, 2],
  values: [0.5, 1, 7, -1, 0.25],
};
const raw = { whiten: false };

t.test('λ = 0 is the one-step error, λ = 1 the return minus the value', async t => {
  const sequence = { ...base, lossMask: [1, 1, 0, 1, 1] };
  const oneStep = estimateAdvantages('gae', [sequence], { ...raw, gamma: 0.5, lambda: 0 });
  t.same(Array.from(oneStep.advantages[0]), [0 + 0.5 * 1 - 0.5, 1 + 0.5 * -1 - 1, 1.125, 1.125, 2 - 0.25]);
  const full = estimateAdvantages('gae', [sequence], { ...raw, gamma: 1, lambda: 1 });
  const kept = full.returns[0].filter((_, k) => sequence.lossMask[k]);
  t.same(Array.from(kept), [3, 3, 2, 2]);
});

t.test('λ between turns applies at turn ends only', async t => {
  const sequence = { ...base, lossMask: [1, 1, 0, 1, 1], turnEnds: [1, 4] };
  const { advantages } = estimateAdvantages('gae', [sequence], { ...raw, lambda: 1, turnLambda: 0.5 });
  const late = [0 + 0.25 - -1 + (2 - 0.25), 2 - 0.25];
  const end = 1 + -1 - 1 + 0.5 * late[0];
  t.same(Array.from(advantages[0]), [0 + 1 - 0.5 + end, end, late[0], late[0], late[1]]);
  const same = estimateAdvantages('gae', [sequence], { ...raw, lambda: 0.9, turnLambda: 0.9 });
  const { advantages: plain } = estimateAdvantages('gae', [sequence], { ...raw, lambda: 0.9 });
  t.same(same.advantages, plain);
});

t.test('λ between turns needs turn ends', async t => {
  t.throws(() => estimateAdvantages('gae', [base], { lambda: 1, turnLambda: 0.5 }), {
    message: 'turn ends are missing: give the position of each turn’s last sampled token',
  });
});

t.test('samples of an episode make one chain where they should, also when episodes are mixed', async t => {
  const whole = { ...base, turnEnds: [1, 4] };
  const first = {
    ...base,
    episodeId: 'a',
    lossMask: [1, 1],
    rewards: [0, 1],
    values: [0.5, 1],
    turnEnds: [1],
  };
  const second = {
    ...base,
    episodeId: 'a',
    lossMask: [0, 1, 1],
    rewards: [0, 0, 2],
    values: [7, -1, 0.25],
    turnEnds: [2],
  };
  const other = { ...base, episodeId: 'b', lossMask: [1], rewards: [5], values: [1], turnEnds: [0] };
  const chained = { ...raw, gamma: 0.5, lambda: 0.9, turnLambda: 0.5, acrossSamples: true };
  const [one] = estimateAdvantages('gae', [whole], { ...chained, acrossSamples: false }).advantages;
  const [a, b, c] = estimateAdvantages('gae', [first, other, second], chained).advantages;
  t.same([...a, ...c], [...one], 'as if they were one sequence');
  t.same([...b], [4]);
  const elsewhere = { ...other, groupId: 'elsewhere', episodeId: first.episodeId };
  const [, apart] = estimateAdvantages('gae', [first, elsewhere, second], chained).advantages;
  t.same([...apart], [4], 'an episode of another group with the same id is another episode');
  const cut = [first, { ...second, bootstrapValue: 4 }];
  const [early] = estimateAdvantages('gae', cut, { ...chained, gamma: 1, lambda: 1, turnLambda: 1 }).returns;
  t.same([...early], [7, 7], 'the chain continues with the value of where it was cut');
});

t.test('nothing bootstraps across sequences', async t => {
  const alone = estimateAdvantages('gae', [base], raw).advantages[0];
  const among = estimateAdvantages('gae', [{ ...base, rewards: [9, 9, 9, 9, 9] }, base], raw).advantages[1];
  t.same(alone, among);
});

t.test('a sequence that was cut short continues with the value of where it was cut', async t => {
  const cut = { ...base, bootstrapValue: 4 };
  const { advantages, returns } = estimateAdvantages('gae', [cut], { ...raw, gamma: 0.5, lambda: 1 });
  t.equal(advantages[0][4], 2 + 0.5 * 4 - 0.25);
  t.equal(returns[0][3], 0 + 0.5 * (2 + 0.5 * 4));
  t.equal(returns[0][0], 0 + 0.5 * (1 + 0.5 * (0 + 0.5 * (2 + 0.5 * 4))));
  const turns = { ...cut, turnEnds: [1, 4] };
  const high = { ...raw, lambda: 1, highLevelGamma: 0.5 };
  const { returns: byTurns } = estimateAdvantages('bi_level_gae', [turns], high);
  t.equal(byTurns[0][4], 2 + 0.5 * 4, 'the turn returns its reward and half of what follows');
  t.equal(byTurns[0][1], 1 + 0.5 * (2 + 0.5 * 4));
});
