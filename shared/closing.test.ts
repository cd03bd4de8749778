import t from 'tap';
import { atEnd, closing, onAbort } from './closing.ts';

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

t.test('an abort acts within the block, and not after it', async t => {
  const [within, after] = [new AbortController(), new AbortController()];
  const acted: string[] = [];
  {
    using _within = onAbort(within.signal, () => acted.push('within'));
    using _after = onAbort(after.signal, () => acted.push('after'));
    using _never = onAbort(undefined, () => acted.push('never'));
    within.abort();
  }
  after.abort();
  t.same(acted, ['within']);
});

t.test('what is to be done at the end of a block is done after a failure too, the last first', async t => {
  const done: string[] = [];
  const use = () => {
    using _first = atEnd(() => done.push('first'));
    using _second = atEnd(() => done.push('second'));
    throw new Error('broken');
  };
  t.throws(use, { message: 'broken' });
  t.same(done, ['second', 'first']);
});
