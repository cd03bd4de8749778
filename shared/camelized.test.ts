import t from 'tap';
import { camelized } from './camelized.ts';

t.test('keys of a section change, values and their keys stay', t => {
  const section = camelized({
    clip_low: 0.2,
    max_response_length: null,
    beta1: 0.9,
    reward_components: { a_b: 1 },
  });
  t.same(section, { clipLow: 0.2, maxResponseLength: null, beta1: 0.9, rewardComponents: { a_b: 1 } });
  const typed: number = section.clipLow;
  t.equal(typed, 0.2);
  t.end();
});
