import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import t from 'tap';
import { VERSION } from '../shared/version.ts';
import { listening, output, runServer, startServer } from '../test/process.test-data.ts';
import { DECLARATIONS, flagOf, SETTINGS, variableOf } from './config/settings.ts';
import { DATABASE_FILE } from './persistence/database.ts';
import { hashToken } from './transports/access/auth.ts';

/** Ten processes are started, each a second of work on a busy machine. */
t.setTimeout(900_000);

t.test('the server prints its address, serves, and ends on SIGTERM with an open socket', async t => {
  const child = runServer(t, ['--port', '0']);
  const { origin } = await listening(child);
  const response = await fetch(`${origin}/v1/sessions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ env_id: 'FrozenLake-v0', seed: 1 }),
  });
  t.equal(response.status, 201);
  await response.json();
  const socket = new WebSocket(`${origin.replace('http', 'ws')}/v1/ws`);
  await once(socket, 'open');
  child.kill('SIGTERM');
  const [code, signal] = await once(child, 'exit');
  t.same([code, signal], [0, null]);
});

t.test(
  'while it drains open sessions go on, but it is not ready; a second signal ends it with them stored',
  async t => {
    const data = t.testdir();
    const { ask, end, child } = await startServer(t, ['--drain-seconds', '30', '--data', data]);
    const create = { env_id: 'FrozenLake-v0', seed: 1 };
    const { body } = await ask('POST', '/v1/sessions', create);
    t.equal((await ask('GET', '/readyz')).status, 200);
    child.kill('SIGTERM');
    while ((await ask('GET', '/readyz')).status === 200)
      await new Promise(resolve => setTimeout(resolve, 10));
    t.equal((await ask('GET', '/readyz')).status, 503);
    t.match(await ask('POST', '/v1/sessions', create), { status: 503, body: { code: 'draining' } });
    t.equal((await ask('POST', `/v1/sessions/${body.session_id}/step`, { action: 'Down' })).status, 200);
    t.same(await end('SIGTERM'), { code: 1, signal: null });
    const database = new DatabaseSync(join(data, DATABASE_FILE));
    t.teardown(() => database.close());
    const [{ session_id, document, at_rest }] = database
      .prepare('SELECT session_id, document, at_rest FROM sessions')
      .all();
    t.equal(session_id, body.session_id);
    t.match(JSON.parse(String(document)), { episode: { step: 1 } });
    t.equal(at_rest, 1);
  },
);

t.test(
  'the default port being taken, it takes a free one; a chosen port being taken, it says so',
  async t => {
    const other = createServer().listen(0, '127.0.0.1');
    t.teardown(() => other.close());
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const chosen = await output(runServer(t, [], { RAGEN_PORT: String(port) }));
    t.equal(chosen.code, 1);
    t.match(chosen.text, /EADDRINUSE/);

    const holder = createServer();
    t.teardown(() => holder.close());
    await new Promise<void>(resolve => {
      holder.once('error', () => resolve());
      holder.listen(SETTINGS.port.default, '127.0.0.1', resolve);
    });
    const { origin, lines } = await listening(runServer(t, []));
    t.not(new URL(origin).port, String(SETTINGS.port.default));
    t.match(lines[0], /port 8080 is taken; using a free one/);
  },
);

t.test('the server listens beyond loopback only with tokens', async t => {
  const refused = await output(runServer(t, ['--host', '0.0.0.0', '--port', '0']));
  t.equal(refused.code, 1);
  t.match(refused.text, /refusing to listen on 0\.0\.0\.0 without tokens/);
  const tokens = JSON.stringify([{ name: 'a', sha256: hashToken('secret'), scopes: ['play'] }]);
  const { origin } = await listening(runServer(t, ['--port', '0'], { RAGEN_TOKENS: tokens }));
  t.equal((await fetch(`${origin}/v1/envs`)).status, 401);
  t.equal((await fetch(`${origin}/v1/envs`, { headers: { authorization: 'Bearer secret' } })).status, 200);
});

t.test('every flag is in the help with its variable, and wrong values are named', async t => {
  const { code, text } = await output(runServer(t, ['--help']));
  t.equal(code, 0);
  for (const name of ['config', ...Object.keys(DECLARATIONS)]) {
    t.match(text, new RegExp(`--${flagOf(name)} <(value|file)> .*env: ${variableOf(name)}\\)`), name);
  }
  const wrong = await output(runServer(t, ['--max-sessions', 'many']));
  t.equal(wrong.code, 1);
  t.match(
    wrong.text,
    /--max-sessions <value>' argument 'many' is invalid. Expected an integer of at least 1/,
  );
});

t.test('a flag wins over the variable of an environment, also with the value of the default', async t => {
  const variable = { RAGEN_DEEPCODER_MAX_CPU_SECONDS: '1' };
  const create = { env_id: 'DeepCoder-v0', config: { cpu_s: 2 } };
  const limited = await startServer(t, [], variable);
  t.match((await limited.ask('POST', '/v1/sessions', create)).text, /the ceiling of this server is 1/);
  const most = String(DECLARATIONS.deepcoderMaxCpuSeconds.default);
  const free = await startServer(t, ['--deepcoder-max-cpu-seconds', most], variable);
  t.notMatch((await free.ask('POST', '/v1/sessions', create)).text, /ceiling/);
});

t.test('--version says the version', async t => {
  t.match(await output(runServer(t, ['--version'])), { code: 0, text: `${VERSION}\n` });
});

t.test('hash-token makes the digest of a token', async t => {
  const child = runServer(t, ['hash-token']);
  child.stdin!.end('secret\n');
  t.match(await output(child), { code: 0, text: hashToken('secret') });
});
