import t from 'tap';
import { annotationsProblem, MAX_ANNOTATIONS_BYTES } from './requests.ts';

const fine = { tags: ['a', 'ünï'], note: '', archived: false };

t.test('annotations within the bounds have no problem, and fit the bound in bytes', async t => {
  t.equal(annotationsProblem(fine), undefined);
  const longest = {
    tags: Array.from({ length: 16 }, (_, i) => `${i}${'中'.repeat(38)}`),
    note: '中'.repeat(2000),
    archived: true,
  };
  t.equal(annotationsProblem(longest), undefined);
  t.ok(Buffer.byteLength(JSON.stringify(longest)) < MAX_ANNOTATIONS_BYTES);
});

t.test('a problem says what is wrong and what would be right', async t => {
  for (const [value, problem] of [
    [null, /JSON object/],
    [[], /JSON object/],
    [{ ...fine, more: 1 }, /`more`: unknown key; known here: tags, note, archived/],
    [{ ...fine, tags: 'a' }, /list of at most 16/],
    [{ ...fine, tags: Array(17).fill('a') }, /list of at most 16/],
    [{ ...fine, tags: ['a b'] }, /1 to 40 characters without spaces/],
    [{ ...fine, tags: [''] }, /1 to 40/],
    [{ ...fine, tags: ['x'.repeat(41)] }, /1 to 40/],
    [{ ...fine, tags: [1] }, /1 to 40/],
    [{ ...fine, tags: ['a', 'a'] }, /twice/],
    [{ ...fine, note: 'x'.repeat(2001) }, /at most 2000/],
    [{ ...fine, archived: 1 }, /true or false/],
  ] as const)
    t.match(annotationsProblem(value), problem);
});
