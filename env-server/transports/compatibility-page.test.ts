import t from 'tap';
import { CANNOT_WALK, readPage, walkThrough } from '../../test/walkthrough.test-data.ts';

const PAGE = 'docs/reference/compatibility.md';

t.test('every command of the page works', { skip: CANNOT_WALK }, async t => {
  const curls = await walkThrough(t, PAGE, { everyReplyShown: true });
  t.ok(curls > 20, `${curls} commands were run`);
});

t.test('the page explains every code of an error frame', async t => {
  const page = readPage(PAGE);
  const source = readPage('env-server/custom/remote/openenv-protocol.ts');
  const codes = [...source.matchAll(/\| '([A-Z_]+)'/g)].map(match => match[1]);
  t.equal(codes.length, 7);
  for (const code of codes) t.ok(page.includes(`| \`${code}\` |`), code);
});
