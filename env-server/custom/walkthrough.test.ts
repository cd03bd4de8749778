import type { AddressInfo } from 'node:net';
import t from 'tap';
import { CANNOT_WALK, readPage, walkThrough } from '../../test/walkthrough.test-data.ts';
import { createApp } from '../app.ts';
import { EXAMPLES } from './examples.ts';

/**
 * Runs the pages about custom environments against a real server, as their reader would: one with flags is a separate
 * process.
 */

t.setTimeout(900_000);

/** Each page, and how many blocks with curl it has at least. */
const PAGES = {
  'docs/how-to/custom-environments.md': 8,
  'docs/how-to/script-environments.md': 4,
  'docs/how-to/remote-environments.md': 5,
};

for (const [page, least] of Object.entries(PAGES)) {
  t.test(`every command of ${page} works`, { skip: CANNOT_WALK }, async t => {
    const { server: app } = await createApp({ logLevel: 'silent' });
    t.teardown(() => app.close());
    await app.listen({ host: '127.0.0.1', port: 0 });
    const server = String((app.server.address() as AddressInfo).port);
    const curls = await walkThrough(t, page, { everyReplyShown: true, server });
    t.ok(curls >= least, `${curls} commands were run`);
  });
}

t.test('the pages show every kind of example in the API reference', async t => {
  const text = Object.keys(PAGES).map(readPage).join('\n');
  const kinds = new Set(
    Object.values(EXAMPLES).map(({ value }) => (value.definition as { kind: string }).kind),
  );
  for (const kind of kinds) t.ok(text.includes(`"kind": "${kind}"`), kind);
});
