import t from 'tap';
import { lazy } from './remembered.ts';

t.test('a value is made once, for all who want it, and a failure is not remembered', async t => {
  let calls = 0;
  const value = lazy(async () => {
    calls++;
    if (calls === 1) throw new Error('too many open files');
    return calls;
  });
  t.equal(calls, 0);
  const first = await Promise.allSettled([value(), value()]);
  t.same(
    first.map(({ status }) => status),
    ['rejected', 'rejected'],
  );
  t.equal(calls, 1);
  t.same(await Promise.all([value(), value()]), [2, 2]);
  t.equal(await value(), 2);
});
