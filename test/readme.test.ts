import t from 'tap';
import { CANNOT_WALK, walkThrough } from './walkthrough.test-data.ts';

t.test('every curl line of the introduction works', { skip: CANNOT_WALK }, async t => {
  t.ok((await walkThrough(t, 'README.md', { otherCommands: 'skip' })) > 0);
});
