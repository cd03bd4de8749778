import t from 'tap';
import {
  adaptiveShares,
  apportion,
  type Curriculum,
  type CurriculumStage,
  curriculumFaults,
  curriculumShares,
  followSuccess,
} from './curriculum.ts';

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
