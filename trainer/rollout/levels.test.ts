import t from 'tap';
import {
  adaptiveShares,
  apportion,
  type Curriculum,
  type CurriculumStage,
  chooseReplays,
  curriculumFaults,
  curriculumShares,
  followSuccess,
  learnability,
  type ReplayedLevel,
  rememberLevels,
} from './levels.ts';

const tags = ['Easy', 'Middle', 'Hard'];
const stages: readonly CurriculumStage[] = [
  { from_step: 1, weights: { Easy: 3, Middle: 1 } },
  { from_step: 11, weights: { Middle: 1, Hard: 1 } },
];
const steps: Curriculum = { blend: 'step', stages };

t.test('stages follow one another at once or gradually', async t => {
  t.same(curriculumShares(steps, tags, 10), [0.75, 0.25, 0]);
  t.same(curriculumShares(steps, tags, 11), [0, 0.5, 0.5]);
  t.same(curriculumShares(steps, tags, 500), [0, 0.5, 0.5]);
  const linear: Curriculum = { blend: 'linear', stages };
  t.same(curriculumShares(linear, tags, 1), [0.75, 0.25, 0]);
  t.same(curriculumShares(linear, tags, 6), [0.375, 0.375, 0.25]);
  t.same(curriculumShares(linear, tags, 11), [0, 0.5, 0.5]);
});

t.test('whole groups are assigned by largest remainder and none is lost', async t => {
  t.same(apportion([1, 1, 1], 8), [3, 3, 2]);
  t.same(apportion([0.75, 0.25, 0], 10), [8, 2, 0], 'the first of equal remainders first');
  t.same(apportion([2, 1], 1), [1, 0]);
});

t.test('a curriculum that cannot be followed says why', async t => {
  t.same(curriculumFaults(steps, tags), []);
  const wrong: Curriculum = {
    blend: 'step',
    stages: [
      { from_step: 5, weights: { Esay: 1 } },
      { from_step: 5, weights: { Hard: 1 } },
    ],
  };
  t.same(curriculumFaults(wrong, tags), [
    'stage 0: Esay not among train_tags: Easy, Middle, Hard',
    'stage 0: no tag has a weight above 0',
    'stage 1 begins at step 5, not after the one before it',
  ]);
});

t.test('an adaptive curriculum prefers tags that succeed half of the time, and forgets none', async t => {
  const rule = { floor: 0.3, decay: 0.5 };
  const shares = adaptiveShares(rule, tags, { Easy: 1, Middle: 0.5, Hard: 0 });
  t.same(
    shares.map(share => Math.round(1000 * share)),
    [100, 800, 100],
  );
  t.same(adaptiveShares({ ...rule, floor: 0 }, tags, { Easy: 1, Middle: 0, Hard: 1 }), [1 / 3, 1 / 3, 1 / 3]);
  const fresh = adaptiveShares(rule, tags, { Easy: 1, Middle: 0.5 });
  t.equal(fresh[1], fresh[2], 'a tag that was not played yet is tried');
  t.same(followSuccess(rule, { Easy: 1 }, { Easy: 0.5, Hard: 0.25 }), { Easy: 0.75, Hard: 0.25 });
});

const level = (seed: number, successes: number, over: Partial<ReplayedLevel> = {}): ReplayedLevel => ({
  tag: 'Lake',
  seed,
  attempts: 8,
  successes,
  step: 1,
  ...over,
});
const SETTINGS = { share: 0.5, capacity: 3, temperature: 0.3, staleness: 0, decay: 0.5 };

t.test('a level that succeeds half of the time is worth most; few attempts say little', async t => {
  const values = [0, 4, 8].map(successes => learnability({ attempts: 8, successes }));
  t.ok(values[1] > values[0] && values[1] > values[2]);
  t.equal(values[0], values[2]);
  t.equal(learnability({ attempts: 0, successes: 0 }), 0.25);
  t.ok(learnability({ attempts: 1, successes: 1 }) > learnability({ attempts: 8, successes: 8 }));
});

t.test('levels are chosen by rank, each once, of their tag alone, the same for the same seed', async t => {
  const levels = [level(1, 8), level(2, 4), level(3, 0), level(4, 4, { tag: 'Other' })];
  const first = new Map<number, number>();
  for (let seed = 0; seed < 300; seed++) {
    const chosen = chooseReplays(levels, 'Lake', 5, SETTINGS, { step: 2, seed });
    t.same(chosen.toSorted(), [1, 2, 3]);
    t.same(chooseReplays(levels, 'Lake', 5, SETTINGS, { step: 2, seed }), chosen);
    first.set(chosen[0], (first.get(chosen[0]) ?? 0) + 1);
  }
  t.ok(first.get(2)! > 200, `the one with success of a half came first ${first.get(2)} times`);
  t.same(chooseReplays([], 'Lake', 2, SETTINGS, { step: 2, seed: 1 }), []);
});

t.test('staleness brings back what was not played for long', async t => {
  const levels = [level(1, 4, { step: 99 }), level(2, 0, { step: 0 })];
  const settings = { ...SETTINGS, staleness: 1 };
  for (let seed = 0; seed < 20; seed++) {
    t.equal(chooseReplays(levels, 'Lake', 1, settings, { step: 99, seed })[0], 2);
  }
});

t.test('new attempts count more than old ones, and the least promising levels are forgotten', async t => {
  const [again] = rememberLevels(
    [level(1, 8)],
    [{ tag: 'Lake', seed: 1, attempts: 8, successes: 0 }],
    SETTINGS,
    5,
  );
  t.same(again, level(1, 4, { attempts: 12, step: 5 }));
  const results = [4, 8, 2, 0].map((successes, i) => ({ tag: 'Lake', seed: 10 + i, attempts: 8, successes }));
  t.same(
    rememberLevels([], results, SETTINGS, 1).map(({ seed }) => seed),
    [10, 12, 11],
  );
});
