import t from 'tap';
import { ADVANTAGES, checkAdvantage, estimateAdvantages } from './registry.ts';

t.test('an unknown name is refused with the valid ones', async t => {
  t.throws(() => estimateAdvantages('gea', []), {
    message: `no advantage estimator "gea"; choose one of ${ADVANTAGES.join(', ')}`,
  });
  t.throws(() => estimateAdvantages('toString', []), { message: /^no advantage estimator "toString"/ });
});

t.test('an estimator’s requirements are checked before it runs', async t => {
  t.throws(() => estimateAdvantages('gae', [{ lossMask: [1], rewards: [1], groupId: 0 }]), {
    message: 'gae needs "values", which sequence 0 lacks',
  });
  t.throws(() => estimateAdvantages('grpo', [{ lossMask: [1, 1], rewards: [1], groupId: 0 }]), {
    message: 'sequence 0: rewards has 1 entries for 2 tokens',
  });
});

t.test('a run that cannot feed an estimator is refused with the reason', async t => {
  const offer = { valueHead: false, groupSize: 8, contextMode: 'full' as const };
  t.throws(() => checkAdvantage('gae', offer), { message: /needs value estimates/ });
  t.throws(() => checkAdvantage('rloo', { ...offer, groupSize: 1 }), {
    message: 'rloo compares the episodes of a group, but group_size is 1: use at least 2',
  });
  t.throws(() => checkAdvantage('gigpo', { ...offer, contextMode: 'single_turn' }), {
    message: /: use full$/,
  });
  t.doesNotThrow(() => checkAdvantage('reinforce_pp', { ...offer, groupSize: 1 }));
});
