import { once } from 'node:events';
import t from 'tap';
import { freePort } from '../../test/free-port.test-data.ts';
import { CANNOT_WALK, readPage, startServer, walkThrough } from '../../test/walkthrough.test-data.ts';
import { EXAMPLES } from './examples.ts';

/** Runs the pages about custom environments against a real server, as their reader would. */

t.setTimeout(900_000);

/** Each page, and how many blocks with curl it has at least. */
const PAGES = {
  'docs/how-to/custom-environments.md': 8,
  'docs/how-to/script-environments.md': 4,
  'docs/how-to/remote-environments.md': 5,
};

for (const [page, least] of Object.entries(PAGES)) {
  t.test(`every command of ${page} works`, { skip: CANNOT_WALK }, async t => {
    const curls = await walkThrough(t, page, { everyReplyShown: true });
    t.ok(curls >= least, `${curls} commands were run`);
  });
}

t.test('the pages show every kind of the examples of the reference', async t => {
  const text = Object.keys(PAGES).map(readPage).join('\n');
  const kinds = new Set(
    Object.values(EXAMPLES).map(({ value }) => (value.definition as { kind: string }).kind),
  );
  for (const kind of kinds) t.ok(text.includes(`"kind": "${kind}"`), kind);
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
