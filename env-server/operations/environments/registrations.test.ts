import t, { type Test } from 'tap';
import { isProblem, type TestApp } from '../../../test/app.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { listening } from '../../../test/wire.test-data.ts';
import { EXAMPLES } from '../../custom/examples.ts';
import { lacksValkey, testValkey } from '../../store/valkey.test-data.ts';
import { hashToken } from '../../transports/access/auth.ts';

const TABULAR = EXAMPLES.tabular.value;
const PATH = `/v1/envs/${encodeURIComponent(TABULAR.env_id as string)}`;
const token = (name: string, ...scopes: string[]) => ({ name, sha256: hashToken(name), scopes });
const tokens = JSON.stringify([token('ann', 'play', 'register'), token('root', 'admin')]);
const as = (name: string) => ({ authorization: `Bearer ${name}` });

const ROWS = [
  ['root', 'remove', 'accepted'],
  ['root', 'replace', 'accepted'],
  ['ann', 'replace', 'invalid_request'],
  ['ann', 'register', 'environment_exists'],
  ['ann', 'register', 'accepted'],
];

/** Changes an environment at two servers and reads what the log has of it. */
async function checkAudit(t: Test, a: TestApp, b: TestApp): Promise<void> {
  const read = (app: TestApp, query = '') => app.ask('GET', `/v1/audit${query}`, undefined, as('root'));
  const { definition } = TABULAR;
  t.same((await read(a)).body, { entries: [], next_cursor: null });
  t.equal((await a.ask('POST', '/v1/envs', TABULAR, as('ann'))).status, 201);
  isProblem(t, await b.ask('POST', '/v1/envs', TABULAR, as('ann')), 'environment_exists');
  isProblem(t, await a.ask('PUT', PATH, { definition: { kind: 'magic' } }, as('ann')), 'invalid_request');
  t.equal((await b.ask('PUT', PATH, { definition } as never, as('root'))).status, 200);
  t.equal((await a.ask('DELETE', PATH, undefined, as('root'))).status, 204);
  const entriesOf = async (app: TestApp, query = '') =>
    (await read(app, query)).body.entries as unknown as { [key: string]: string }[];
  // Refused attempts are noted soon.
  await until(async () => (await entriesOf(b)).length === ROWS.length);
  const entries = await entriesOf(a);
  t.same(
    entries.map(({ principal, action, outcome }) => [principal, action, outcome]),
    ROWS,
  );
  t.match(entries[1], { env_id: TABULAR.env_id, kind: 'tabular', sha256: /^[0-9a-f]{64}$/, at: /T.*Z$/ });
  t.same(await entriesOf(b), entries, 'every server has the same log');

  const paged: { [key: string]: string }[] = [];
  for (let cursor = ''; ; ) {
    const { body } = await read(paged.length % 2 ? a : b, `?limit=2${cursor}`);
    paged.push(...(body.entries as unknown as typeof paged));
    if (body.next_cursor === null) break;
    cursor = `&cursor=${body.next_cursor}`;
  }
  t.same(paged, entries, 'page by page');
  t.same((await read(a, '?limit=5')).body.next_cursor, null, 'a full last page');

  isProblem(t, await a.ask('GET', '/v1/audit', undefined, as('ann')), 'forbidden');
  isProblem(t, await a.ask('GET', '/v1/audit'), 'unauthorized');
  for (const query of ['?limit=0', '?limit=1001', '?cursor=x', '?cursor=9-9-9', `?cursor=${'9'.repeat(16)}`])
    isProblem(t, await read(a, query), 'invalid_request');
  t.same((await read(a, '?cursor=0')).body, { entries: [], next_cursor: null });
  t.equal((await entriesOf(a, `?cursor=${'9'.repeat(15)}-7`)).length, ROWS.length);
}

t.test('an administrator reads the audit log of an embedded database', async t => {
  for (const data of ['', t.testdir()]) {
    const app = await listening(t, { tokens, data });
    await checkAudit(t, app, app);
  }
});

t.test('servers that share a store share its audit log', { skip: lacksValkey }, async t => {
  const { address: store, stop } = await testValkey(t);
  const [a, b] = [await listening(t, { tokens, store }), await listening(t, { tokens, store })];
  await checkAudit(t, a, b);
  await stop();
  await until(async () => (await b.ask('GET', '/v1/audit', undefined, as('root'))).status === 503);
  isProblem(t, await b.ask('GET', '/v1/audit', undefined, as('root')), 'storage_failed');
});

t.test('an entry keeps no more than 128 characters of an id', async t => {
  const app = await listening(t, { tokens });
  const long = 'a'.repeat(10_000);
  await app.ask('DELETE', `/v1/envs/${long}`, undefined, as('ann'));
  app.registrations.audit.refused(
    { principal: { name: 'ann', scopes: new Set() }, action: 'remove', envId: long, definition: undefined },
    new Error('any'),
  );
  const { body } = await app.ask('GET', '/v1/audit', undefined, as('root'));
  const ids = (body.entries as unknown as { env_id: string }[]).map(({ env_id }) => env_id.length);
  t.ok(ids.length > 0 && ids.every(length => length <= 128), `${ids}`);
});
