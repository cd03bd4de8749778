import { once } from 'node:events';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import t from 'tap';
import { VERSION } from '../shared/program.ts';
import { listenLocally } from '../test/local-server.test-data.ts';
import { listening, output, runServer, startServer } from '../test/process.test-data.ts';
import { until } from '../test/until.test-data.ts';
import { DECLARATIONS, flagOf, SETTINGS, variableOf } from './config/settings.ts';
import { DATABASE_FILE } from './persistence/database.ts';
import { hashToken } from './transports/access/auth.ts';

/** A dozen processes are started, each a second of work on a busy machine. */
t.setTimeout(900_000);

/** A variable of an environment, and a request that it forbids. */
const CEILING = { RAGEN_DEEPCODER_MAX_CPU_SECONDS: '1' };
const BEYOND_CEILING = { env_id: 'DeepCoder-v0', config: { cpu_s: 2 } };

t.test('the server prints its address, serves, and ends on SIGTERM with an open socket', async t => {
  const { ask, origin, end } = await startServer(t, [], CEILING);
  t.equal((await ask('POST', '/v1/sessions', { env_id: 'FrozenLake-v0', seed: 1 })).status, 201);
  const limited = await ask('POST', '/v1/sessions', BEYOND_CEILING);
  t.match(limited.text, /the ceiling of this server is 1/, 'variables of environments are read');
  const socket = new WebSocket(`${origin.replace('http', 'ws')}/v1/ws`);
  await once(socket, 'open');
  t.same(await end('SIGTERM'), { code: 0, signal: null });
});

const TOKENS = JSON.stringify([{ name: 'a', sha256: hashToken('secret'), scopes: ['play'] }]);
const BEARER = { authorization: 'Bearer secret' };

t.test(
  'while it drains open sessions continue, but it is not ready; a second signal ends it with them stored',
  async t => {
    const data = t.testdir();
    const flags = ['--drain-seconds', '30', '--data', data];
    const { ask, end, child } = await startServer(t, flags, { RAGEN_TOKENS: TOKENS });
    const create = { env_id: 'FrozenLake-v0', seed: 1 };
    t.equal((await ask('POST', '/v1/sessions', create)).status, 401, 'tokens come from a variable, too');
    const { body } = await ask('POST', '/v1/sessions', create, BEARER);
    t.equal((await ask('GET', '/readyz')).status, 200);
    child.kill('SIGTERM');
    while ((await ask('GET', '/readyz')).status === 200)
      await new Promise(resolve => setTimeout(resolve, 10));
    t.equal((await ask('GET', '/readyz')).status, 503);
    const refused = await ask('POST', '/v1/sessions', create, BEARER);
    t.match(refused, { status: 503, body: { code: 'draining' } });
    const step = `/v1/sessions/${body.session_id}/step`;
    t.equal((await ask('POST', step, { action: 'Down' }, BEARER)).status, 200);
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

/** Node loads this code before the program, in workers too. */
const preloaded = (code: string) => ({
  NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}`,
});

t.test('a promise that fails without anybody waiting for it is logged, and the server continues', async t => {
  const failing = preloaded("process.on('SIGUSR2', () => { Promise.reject(new Error('nobody waits')); })");
  const { ask, end, child } = await startServer(t, ['--log-level', 'info'], failing);
  const { body } = await ask('POST', '/v1/sessions', { env_id: 'FrozenLake-v0' });
  let text = '';
  child.stdout!.on('data', chunk => {
    text += chunk;
  });
  process.kill(child.pid!, 'SIGUSR2');
  await until(() => /"message":"nobody waits".*"a promise failed that nobody waited for"/.test(text));
  t.equal(child.exitCode, null);
  t.equal((await ask('GET', `/v1/sessions/${body.session_id}`)).status, 200);
  t.same(await end('SIGTERM'), { code: 0, signal: null });
});

t.test(
  'the default port being taken, it takes a free one; a chosen port being taken, it says so; a flag wins over a variable',
  async t => {
    const { port } = await listenLocally(t, createServer());
    const chosen = await output(runServer(t, [], { RAGEN_PORT: String(port) }));
    t.equal(chosen.code, 1);
    t.match(
      chosen.text,
      new RegExp(`port ${port} is taken: --port names another, --port 0 takes a free one`),
    );

    const holder = createServer();
    t.teardown(() => holder.close());
    await new Promise<void>(resolve => {
      holder.once('error', () => resolve());
      holder.listen(SETTINGS.port.default, '127.0.0.1', resolve);
    });
    // A flag wins over the variable of an environment, also with the value of the default.
    const most = String(DECLARATIONS.deepcoderMaxCpuSeconds.default);
    const child = runServer(t, ['--deepcoder-max-cpu-seconds', most], CEILING);
    const { origin, lines } = await listening(child);
    t.not(new URL(origin).port, String(SETTINGS.port.default));
    t.match(lines[0], /port 8080 is taken; using a free one/);
    const free = await fetch(`${origin}/v1/sessions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(BEYOND_CEILING),
    });
    t.notMatch(await free.text(), /ceiling/);
  },
);

t.test('the server listens beyond loopback only with tokens', async t => {
  const refused = await output(runServer(t, ['--host', '0.0.0.0', '--port', '0']));
  t.equal(refused.code, 1);
  t.match(refused.text, /refusing to listen on 0\.0\.0\.0 without tokens/);
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
  t.match(await output(runServer(t, ['--port', '65536'])), {
    code: 1,
    text: /'--port <value>' argument '65536' is invalid. Expected an integer from 0 to 65535/,
  });
});

t.test('--version says the version', async t => {
  t.match(await output(runServer(t, ['--version'])), { code: 0, text: `${VERSION}\n` });
});

t.test('hash-token makes the digest of a token', async t => {
  const child = runServer(t, ['hash-token']);
  child.stdin!.end('secret\n');
  t.match(await output(child), { code: 0, text: hashToken('secret') });
});
