import t from 'tap';
import { atOnce, inTurns, type Parts } from './parts.ts';

function* counting(to: number): Parts<number> {
  let count = 0;
  for (; count < to; count++) yield;
  return count;
}

t.test('work in parts ends with its result', async t => {
  t.equal(atOnce(counting(3)), 3);
  t.equal(await inTurns(counting(3)), 3);
  t.equal(await inTurns(counting(0)), 0);
});

t.test('others have their turn between two parts', async t => {
  const order: string[] = [];
  setImmediate(() => order.push('other'));
  await inTurns(
    (function* (): Parts<void> {
      order.push('first part');
      yield;
      order.push('second part');
    })(),
  );
  t.same(order, ['first part', 'other', 'second part']);
});

t.test('an error ends the work', async t => {
  const failing = function* (): Parts<number> {
    yield;
    throw new Error('no more');
  };
  t.throws(() => atOnce(failing()), /no more/);
  await t.rejects(inTurns(failing()), /no more/);
});
