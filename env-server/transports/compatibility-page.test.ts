import t from 'tap';
import { freePort } from '../../test/free-port.test-data.ts';
import { CANNOT_WALK, readPage, startServer, walkThrough } from '../../test/walkthrough.test-data.ts';

const PAGES = ['openenv', 'mcp', 'open-reward-standard', 'gym-http-api', 'gymnasium-spaces'];
const FURTHER_PAGES = ['observation-parts'];
/** Commands of the pages together. */
const FEWEST_COMMANDS = 25;

t.test('every command of the pages about clients of others works', { skip: CANNOT_WALK }, async t => {
  const server = String(await freePort());
  await startServer(t, ['--port', server]);
  let curls = 0;
  for (const page of [...PAGES, ...FURTHER_PAGES]) {
    curls += await walkThrough(t, `docs/reference/${page}.md`, {
      everyReplyShown: true,
      otherCommands: 'skip',
      server,
    });
  }
  t.ok(curls >= FEWEST_COMMANDS, `${curls} commands were run`);
});

t.test('every page and every test that the overview names is there', async t => {
  const overview = readPage('docs/reference/compatibility.md');
  for (const page of PAGES) t.ok(overview.includes(`(${page}.md)`), page);
  const tests = [...overview.matchAll(/`((?:env-server|openapi|docs|trainer)\/[\w./-]+\.test\.ts)`/g)];
  t.ok(tests.length > 0);
  for (const [, path] of tests) t.ok(readPage(path), path);
});

t.test('the page explains every code of an error frame', async t => {
  const page = readPage('docs/reference/openenv.md');
  const source = readPage('env-server/custom/remote/openenv-protocol.ts');
  const codes = [...source.matchAll(/\| '([A-Z_]+)'/g)].map(match => match[1]);
  t.equal(codes.length, 7);
  for (const code of codes) t.match(page, new RegExp(`^- \`${code}\`: `, 'm'), code);
});
