import t from 'tap';
import { classifyRegime } from './regime.ts';

t.test('entropy and information name four regimes', async t => {
  const bound = Math.log(8);
  t.equal(classifyRegime(1.5, 1, bound), 'diverse');
  t.equal(classifyRegime(1.5, 0.01, bound), 'template_collapse');
  t.equal(classifyRegime(0.02, 1, bound), 'compressed');
  t.equal(classifyRegime(0.02, 0.01, bound), 'low_entropy_collapse');
});
