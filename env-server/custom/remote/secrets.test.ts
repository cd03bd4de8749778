import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { pino } from 'pino';
import t, { type Test } from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { createApp } from '../../app.ts';
import type { Settings } from '../../config/settings.ts';
import { HeaderSecrets, type HeaderValue, withoutSecrets } from './secrets.ts';
import { testService } from './service.test-data.ts';

const SECRET = 'Bearer ninety-nine red balloons';
const ENV_ID = 'me/Far-v0';

function folderOf(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'ragen-secrets-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  return folder;
}

const settings = (keyFile?: string, allowedSecretVariables = 'RAGEN_SECRET_*') => ({
  keyFile,
  allowedSecretVariables,
});
const sealedBy = (secrets: HeaderSecrets, envId = ENV_ID) =>
  (secrets.seal(envId, { headers: { authorization: SECRET } }).headers as { [name: string]: HeaderValue })
    .authorization;

t.test(
  'a header is encrypted for its environment and name, with a key that only the owner reads',
  async t => {
    const file = join(folderOf(t), 'keys', 'headers.key');
    const secrets = new HeaderSecrets(settings(file));
    t.same(secrets.seal(ENV_ID, { url: 'x' }), { url: 'x' }, 'no key is made for nothing');
    const sealed = sealedBy(secrets);
    t.equal(statSync(file).mode & 0o777, 0o600);
    t.notMatch(JSON.stringify(sealed), /balloons/);
    t.not(JSON.stringify(sealed), JSON.stringify(sealedBy(secrets)), 'each time with a new nonce');
    const later = new HeaderSecrets(settings(file));
    t.equal(later.open(ENV_ID, 'Authorization', sealed, 'a.test'), SECRET);
    t.throws(() => later.open('me/Other-v0', 'authorization', sealed, 'a.test'), /was altered/);
    t.throws(() => later.open(ENV_ID, 'x-other', sealed, 'a.test'), /was altered/);
    t.same(readdirSync(join(file, '..')), ['headers.key'], 'no drafts are left');
  },
);

t.test('the error for a lost, changed or broken key names its file and the remedy', async t => {
  const file = join(folderOf(t), 'headers.key');
  const sealed = sealedBy(new HeaderSecrets(settings(file)));
  const open = () => new HeaderSecrets(settings(file)).open(ENV_ID, 'authorization', sealed, 'a.test');
  writeFileSync(file, 'ab'.repeat(32));
  t.throws(open, /encrypted with another key .* Bring back the key file, or replace the environment/);
  writeFileSync(file, 'not a key');
  t.throws(open, /must hold 64 hexadecimal digits/);
  rmSync(file);
  t.throws(open, /is missing: .*headers\.key/);
});

t.test('variables are read only where the operator allows them', async t => {
  const variables = { RAGEN_SECRET_A: 'a', RAGEN_TOKENS: 'all', TEAM_KEY: 'k' };
  const open = (name: string, allowed: string, host = 'a.test') =>
    new HeaderSecrets(settings(undefined, allowed), variables).open(ENV_ID, 'x', { $env: name }, host);
  t.equal(open('RAGEN_SECRET_A', 'RAGEN_SECRET_*'), 'a');
  t.equal(open('TEAM_KEY', 'RAGEN_SECRET_*, TEAM_KEY@a.test'), 'k');
  t.throws(() => open('TEAM_KEY', 'TEAM_KEY@b.test'), /TEAM_KEY may not be sent to a\.test/);
  t.throws(() => open('RAGEN_TOKENS', 'RAGEN_SECRET_*'), /RAGEN_TOKENS may not be sent/);
  t.throws(() => open('ABSENT', 'RAGEN_SECRET_*'), /ABSENT may not be sent/, 'set or not');
  t.throws(() => open('RAGEN_SECRET_B', 'RAGEN_SECRET_*'), /RAGEN_SECRET_B of the server is not set/);
  t.throws(() => open('RAGEN_SECRET_A', ''), /may not be sent/);
});

t.test('replies show names and references, never values', async t => {
  t.same(withoutSecrets({ headers: { a: 'x', b: { $env: 'B' }, c: { $sealed: 's' }, d: 5 } }), {
    headers: { a: '(not shown)', b: { $env: 'B' }, c: '(not shown)', d: '(not shown)' },
  });
  for (const other of [undefined, null, 5, 'x', [], { headers: 'x' }]) t.same(withoutSecrets(other), other);
});

async function server(t: Test, given: Partial<Settings>, lines: string[] = []) {
  const log = pino({ level: 'debug' }, { write: (line: string) => lines.push(line) });
  const app = await createApp({ remoteNetworks: '127.0.0.1', ...given }, { log });
  let open = true;
  const close = async () => {
    if (open) await app.server.close();
    open = false;
  };
  t.teardown(close);
  const ask = async (method: string, url: string, payload?: Json) => {
    const reply = await app.server.inject({
      method: method as 'GET',
      url,
      ...(payload !== undefined && {
        headers: { 'content-type': 'application/json' },
        payload: JSON.stringify(payload),
      }),
    });
    return { status: reply.statusCode, text: reply.body };
  };
  return { ask, close };
}

async function remote(t: Test, headers: JsonObject) {
  const service = await testService(t, ({ headers: { authorization } }) =>
    authorization === SECRET ? { body: { observation: 'in' } } : { status: 403, body: { detail: 'who?' } },
  );
  const definition = {
    kind: 'remote',
    protocol: 'webhook',
    url: service.url,
    title: 'Far',
    instruction: 'Go.',
    action_space: { type: 'Text' },
    example_action: 'x',
    headers,
  };
  return { env_id: ENV_ID, definition };
}

const bytesIn = (folder: string) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => readFileSync(join(entry.parentPath, entry.name), 'latin1'))
    .join('\n');

t.test('a header reaches its service and nobody else: no file, reply, log line or metric', async t => {
  const data = folderOf(t);
  const registration = await remote(t, { authorization: SECRET });
  const lines: string[] = [];
  const first = await server(t, { data }, lines);
  const made = await first.ask('POST', '/v1/envs', registration);
  t.equal(made.status, 201, made.text);
  const shown = await first.ask('GET', `/v1/envs/${encodeURIComponent(ENV_ID)}/definition`);
  t.match(shown.text, /\(not shown\)/);
  const metrics = await first.ask('GET', '/metrics');
  await first.close();
  for (const text of [made.text, shown.text, metrics.text, lines.join('\n'), bytesIn(data)]) {
    t.notMatch(text, /balloons/);
  }
  const again = await server(t, { data });
  t.equal((await again.ask('POST', '/v1/sessions', { env_id: ENV_ID })).status, 201);
  const copied = JSON.parse(shown.text).definition;
  const put = await again.ask('PUT', `/v1/envs/${encodeURIComponent(ENV_ID)}`, { definition: copied });
  t.match(put.text, /needs its value again/);
  await again.close();

  rmSync(join(data, 'headers.key'));
  const loud: string[] = [];
  const lost = await server(t, { data }, loud);
  const refused = await lost.ask('POST', '/v1/sessions', { env_id: ENV_ID });
  t.match(refused, { status: 500, text: /me\/Far-v0 cannot be played: the key .* is missing/ });
  t.match(loud.join('\n'), /me\/Far-v0 cannot be played/);
  t.equal((await lost.ask('POST', '/v1/sessions', { env_id: 'FrozenLake-v0' })).status, 201);
  t.equal(
    (await lost.ask('PUT', `/v1/envs/${encodeURIComponent(ENV_ID)}`, registration as Json)).status,
    422,
    'env_id is not a key there',
  );
  const { definition } = registration;
  const mended = await lost.ask('PUT', `/v1/envs/${encodeURIComponent(ENV_ID)}`, { definition });
  t.equal(mended.status, 200, mended.text);
  t.equal((await lost.ask('POST', '/v1/sessions', { env_id: ENV_ID })).status, 201);
});

t.test('headers stored as plain text are encrypted at the next start', async t => {
  const data = folderOf(t);
  const { env_id, definition } = await remote(t, { authorization: SECRET });
  await (await server(t, { data })).close();
  const database = new DatabaseSync(join(data, 'ragen.db'));
  const insert = database.prepare(
    `INSERT INTO environments VALUES (?, 'remote', ?, '{}', 'local', 1, 1, NULL)`,
  );
  insert.run(env_id, JSON.stringify(definition));
  database.close();
  t.match(bytesIn(data), /balloons/);
  const { ask, close } = await server(t, { data });
  t.equal((await ask('POST', '/v1/sessions', { env_id })).status, 201);
  await close();
  t.notMatch(bytesIn(data), /balloons/);
});

t.test('a definition may name an allowed variable only', async t => {
  process.env.RAGEN_SECRET_TEST_FAR = SECRET;
  t.teardown(() => {
    delete process.env.RAGEN_SECRET_TEST_FAR;
  });
  const { ask } = await server(t, {});
  const refused = await ask('POST', '/v1/envs', await remote(t, { authorization: { $env: 'PATH' } }));
  t.match(refused, { status: 422, text: /the variable PATH may not be sent to 127\.0\.0\.1/ });
  const reference = { authorization: { $env: 'RAGEN_SECRET_TEST_FAR' } };
  const made = await ask('POST', '/v1/envs', await remote(t, reference));
  t.equal(made.status, 201, made.text);
  const { text } = await ask('GET', `/v1/envs/${encodeURIComponent(ENV_ID)}/definition`);
  t.same(JSON.parse(text).definition.headers, reference);
});
