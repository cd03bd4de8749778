import t from 'tap';
import { createApp } from '../../env-server/app.ts';
import { hashToken } from '../../env-server/transports/access/auth.ts';
import { hostOf } from '../../test/wire.test-data.ts';
import { fuzz } from './fuzzer.ts';
import { fuzzOrs } from './ors.ts';

/** Two short runs of the fuzzer; the long mode is `npm run fuzz:api -- --requests 100000 --seed <n>`. */
const SEEDS = [1, 2];
const REQUESTS = 150;
const TOKENS = ['all', 'play'];

t.test('the Open Reward Standard answers any request with what it documents', async t => {
  const tokens = [{ name: 'play', sha256: hashToken('play'), scopes: ['play'] }];
  const app = await createApp({ logLevel: 'silent', maxSessions: 3, tokens: JSON.stringify(tokens) });
  t.teardown(() => app.server.close());
  await app.server.listen({ port: 0, host: '127.0.0.1' });
  const origin = `http://${hostOf(app)}`;
  const { faults } = await fuzzOrs({ origin, token: 'play', requests: 2 * REQUESTS, seed: 1 });
  t.same(faults, []);
  t.equal(app.sessions.size, 0);
});

for (const seed of SEEDS) {
  t.test(`the server keeps to its OpenAPI document for any request: seed ${seed}`, async t => {
    const app = await createApp({
      logLevel: 'silent',
      maxSessions: 1000,
      maxBatchItems: 64,
      tokens: JSON.stringify([
        { name: 'all', sha256: hashToken(TOKENS[0]), scopes: ['play', 'register', 'admin'] },
        { name: 'play', sha256: hashToken(TOKENS[1]), scopes: ['play'] },
      ]),
    });
    t.teardown(() => app.server.close());
    await app.server.listen({ port: 0, host: '127.0.0.1' });
    const report = await fuzz({ origin: `http://${hostOf(app)}`, tokens: TOKENS, requests: REQUESTS, seed });
    t.same(report.faults, []);
    t.equal(report.requests, REQUESTS);
    t.ok(report.answers.size > 20, 'most operations were asked for');
    t.equal(app.sessions.size, 0);
  });
}
