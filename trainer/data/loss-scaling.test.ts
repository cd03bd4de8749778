import t from 'tap';
import { lossScale } from './filtering.ts';

t.test('the fewer groups are kept, the smaller the step', async t => {
  t.equal(lossScale('none', 0.25), 1);
  t.equal(lossScale('linear', 0.25), 0.25);
  t.equal(lossScale('sqrt', 0.25), 0.5);
  t.throws(() => lossScale('square' as 'sqrt', 0.25), {
    message: 'no loss scaling "square"; choose one of none, linear, sqrt',
  });
});
