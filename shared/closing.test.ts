import t from 'tap';
import { closing } from './closing.ts';

t.test('a resource is closed at the end of its block, after a failure too', async t => {
  const closed: string[] = [];
  const open = (name: string) => closing({ name, close: async () => closed.push(name) });
  const use = async () => {
    await using first = open('first');
    await using second = open('second');
    if (first.name !== second.name) throw new Error('broken');
  };
  await t.rejects(use(), { message: 'broken' });
  t.same(closed, ['second', 'first']);
});
