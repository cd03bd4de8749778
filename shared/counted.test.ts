import t from 'tap';
import { counted } from './counted.ts';

t.test('one is singular, every other number plural', async t => {
  t.same(
    [0, 1, 2].map(count => counted(count, 'session')),
    ['0 sessions', '1 session', '2 sessions'],
  );
  t.equal(counted(2, 'reply', 'replies'), '2 replies');
});
