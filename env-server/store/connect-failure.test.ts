import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { pino } from 'pino';
import t, { type Test } from 'tap';
import { freePort } from '../../test/free-port.test-data.ts';
import { listenLocally } from '../../test/local-server.test-data.ts';
import { storeAddressOf } from './address.ts';
import { StoreConnection } from './connection.ts';
import { lacksValkey, testValkey } from './valkey.test-data.ts';

const lacksSentinel =
  spawnSync('valkey-sentinel', ['--version']).status !== 0 &&
  'needs valkey-sentinel: apt-get install valkey-sentinel';
const lacksOpenssl =
  spawnSync('openssl', ['version']).status !== 0 && 'needs openssl: apt-get install openssl';
/** Not the 4 s that a connection may take: a busy machine delays the message. */
const DEADLINE_MS = 30_000;

type Environment = { readonly [name: string]: string };

/** Opens a store that cannot be used; returns the reason. */
async function failureOf(address: string, env: Environment = {}): Promise<string> {
  const opening = StoreConnection.open(storeAddressOf(address, env), 'journal', pino({ level: 'silent' }));
  const failure = opening.then(
    connection => {
      connection.close();
      return 'it can be used';
    },
    (error: Error) => error.message.slice(error.message.indexOf('cannot be used: ') + 16),
  );
  const timer = new AbortController();
  const late = once(AbortSignal.any([timer.signal, AbortSignal.timeout(DEADLINE_MS)]), 'abort');
  try {
    return await Promise.race([failure, late.then(() => 'no reason is given')]);
  } finally {
    timer.abort();
  }
}

async function portOf(t: Test, ...more: readonly string[]): Promise<number> {
  const port = await freePort();
  await testValkey(t, '--port', String(port), ...more);
  return port;
}

/** A Sentinel that watches `main` on a port. */
async function sentinelOf(t: Test, primary: number, ...more: readonly string[]): Promise<string> {
  const [port, folder] = [await freePort(), t.testdir()];
  const lines = [`port ${port}`, `dir ${folder}`, `sentinel monitor main 127.0.0.1 ${primary} 1`, ...more];
  writeFileSync(`${folder}/sentinel.conf`, `${lines.join('\n')}\n`);
  const sentinel = spawn('valkey-sentinel', [`${folder}/sentinel.conf`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => sentinel.kill('SIGKILL'));
  for await (const line of createInterface({ input: sentinel.stdout })) if (line.includes('+monitor')) break;
  sentinel.stdout.resume();
  return `127.0.0.1:${port}`;
}

/** A key and a certificate of no authority, for localhost. */
function certificateIn(folder: string): { readonly key: string; readonly cert: string } {
  const [key, cert] = [`${folder}/key.pem`, `${folder}/cert.pem`];
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
  const made = spawnSync('openssl', [
    ...['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-keyout', key, '-out', cert],
    ...names,
  ]);
  if (made.status !== 0) throw new Error(String(made.stderr));
  return { key, cert };
}

t.test('a port without a server', async t => {
  const port = await freePort();
  t.equal(await failureOf(`valkey://127.0.0.1:${port}`), `connect ECONNREFUSED 127.0.0.1:${port}`);
});

t.test('TLS to a port without TLS', { skip: lacksValkey }, async t => {
  const reason = await failureOf(`valkeys://localhost:${await portOf(t)}`);
  t.match(reason, /^connect ETIMEDOUT \(no TLS handshake within 4000 ms;.* write valkey:\/\/\)$/);
});

t.test('a port with TLS', { skip: lacksValkey || lacksOpenssl }, async t => {
  const port = await freePort();
  const { key, cert } = certificateIn(t.testdir());
  const files = ['--tls-cert-file', cert, '--tls-key-file', key, '--tls-ca-cert-file', cert];
  const valkey = await testValkey(t, '--tls-port', String(port), ...files, '--tls-auth-clients', 'no');
  const secure = `valkeys://localhost:${port}`;
  t.match(await failureOf(`valkey://localhost:${port}`), /write valkeys:\/\/\)$/);
  t.match(await failureOf(secure), /^self-signed certificate.*\(RAGEN_STORE_CA names the file/);
  t.equal(await failureOf(secure, { RAGEN_STORE_CA: cert }), 'it can be used');
  t.match(
    await failureOf(`valkeys://127.0.0.1:${port}`, { RAGEN_STORE_CA: cert }),
    /^Hostname\/IP does not match/,
  );
  const admin = spawnSync('valkey-cli', [
    ...['-s', valkey.address.slice('valkey+unix://'.length)],
    ...['config', 'set', 'tls-auth-clients', 'yes'],
  ]);
  t.equal(String(admin.stdout).trim(), 'OK');
  t.match(
    await failureOf(secure, { RAGEN_STORE_CA: cert }),
    /certificate required.*set tls-auth-clients no\)$/s,
  );
});

t.test('a store with a password', { skip: lacksValkey }, async t => {
  const store = `127.0.0.1:${await portOf(t, '--requirepass', 'right')}`;
  t.match(await failureOf(`valkey://${store}`), /^NOAUTH .*RAGEN_STORE_PASSWORD/);
  t.match(await failureOf(`valkey://:wrong@${store}`), /^WRONGPASS .*RAGEN_STORE_PASSWORD/);
  t.match(await failureOf(`valkey://${store}`, { RAGEN_STORE_PASSWORD: 'wrong' }), /^WRONGPASS/);
  t.equal(await failureOf(`valkey://${store}`, { RAGEN_STORE_PASSWORD: 'right' }), 'it can be used');
});

t.test('a store that keeps no sessions', { skip: lacksValkey }, async t => {
  const port = await portOf(t);
  const replica = await portOf(t, '--replicaof', `127.0.0.1 ${port}`);
  const cluster = await portOf(t, '--cluster-enabled', 'yes');
  t.equal(await failureOf(`valkey://127.0.0.1:${port}/15`), 'it can be used');
  t.match(await failureOf(`valkey://127.0.0.1:${port}/16`), /DB index is out of range/);
  t.match(await failureOf(`valkey://127.0.0.1:${replica}`), /^READONLY .*it is a replica: name the primary/);
  t.match(await failureOf(`valkey://127.0.0.1:${cluster}`), /^it is a cluster/);
});

t.test('a port that answers in another protocol', async t => {
  const server = createServer(socket => void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
  const { port } = await listenLocally(t, server);
  t.match(await failureOf(`valkey://127.0.0.1:${port}`), /^Protocol error, got "H"/);
});

t.test('Sentinels', { skip: lacksValkey || lacksSentinel, timeout: 120_000 }, async t => {
  const store = await portOf(t, '--requirepass', 'right');
  const [sentinel, none] = [await sentinelOf(t, store), `127.0.0.1:${await freePort()}`];
  const right = { RAGEN_STORE_PASSWORD: 'right' };

  await t.test('the primary is found, also after a Sentinel that does not answer', async t => {
    t.equal(await failureOf(`valkey+sentinel://${none},${sentinel}/main`, right), 'it can be used');
    const without = await failureOf(`valkey+sentinel://${sentinel}/main`);
    t.match(without, new RegExp(`^its primary 127\\.0\\.0\\.1:${store}: NOAUTH .*RAGEN_STORE_PASSWORD`));
  });
  await t.test('no Sentinel knows the primary', async t => {
    t.equal(
      await failureOf(`valkey+sentinel://${none},${sentinel}/other`, right),
      `${none} connect ECONNREFUSED ${none}; ${sentinel} knows no primary "other"`,
    );
  });
  await t.test('the port is no Sentinel, or one without TLS', async t => {
    const plain = `127.0.0.1:${await portOf(t)}`;
    t.match(await failureOf(`valkey+sentinel://${plain}/main`), `${plain} is no Sentinel`);
    t.match(
      await failureOf(`valkeys+sentinel://${sentinel}/main`, right),
      /no TLS handshake within 4000 ms;.* write valkey\+sentinel:\/\/\)$/,
    );
  });
  await t.test('a Sentinel is named as the store', async t => {
    t.match(await failureOf(`valkey://${sentinel}`), /^it is a Sentinel: write valkey\+sentinel:/);
  });
  await t.test('a Sentinel that requires a password gets it', async t => {
    const closed = await sentinelOf(t, store, 'requirepass hidden');
    const address = `valkey+sentinel://${closed}/main`;
    t.match(await failureOf(address, right), /NOAUTH .*RAGEN_SENTINEL_PASSWORD/);
    t.match(
      await failureOf(address, { ...right, RAGEN_SENTINEL_PASSWORD: 'x' }),
      /WRONGPASS .*RAGEN_SENTINEL/,
    );
    t.equal(await failureOf(address, { ...right, RAGEN_SENTINEL_PASSWORD: 'hidden' }), 'it can be used');
  });
});
