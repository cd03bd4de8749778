import { once } from 'node:events';
import t from 'tap';
import {
  CANNOT_WALK,
  freePort,
  readPage,
  startServer,
  walkThrough,
} from '../../test/walkthrough.test-data.ts';
import { EXAMPLES } from './examples.ts';

/** Runs docs/how-to/custom-environments.md against a real server, as its reader would. */

t.setTimeout(300_000);

const PAGE = 'docs/how-to/custom-environments.md';

t.test('every command of the page works', { skip: CANNOT_WALK }, async t => {
  const curls = await walkThrough(t, PAGE, { everyReplyShown: true });
  t.ok(curls > 15, `${curls} commands were run`);
});

t.test('the examples of the page are the examples of the reference', async t => {
  const page = readPage(PAGE);
  const kinds = new Set(
    Object.values(EXAMPLES).map(({ value }) => (value.definition as { kind: string }).kind),
  );
  for (const kind of kinds) t.ok(page.includes(`"kind": "${kind}"`), kind);
});

t.test('a registration survives kill -9', async t => {
  const folder = t.testdir();
  const port = await freePort();
  const flags = ['--port', String(port), '--data', folder];
  const first = await startServer(t, flags);
  const response = await fetch(`http://127.0.0.1:${port}/v1/envs`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(EXAMPLES.tabular.value),
  });
  t.equal(response.status, 201);
  await response.json();
  first.kill('SIGKILL');
  await once(first, 'exit');
  await startServer(t, flags);
  const found = await fetch(`http://127.0.0.1:${port}/v1/envs/demo%2FCrossing-v0`);
  t.match(await found.json(), { env_id: 'demo/Crossing-v0', title: 'River crossing' });
});
