import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { parseAllDocuments } from 'yaml';

const MANIFEST = join(import.meta.dirname, 'kubernetes/options/sentinel.yaml');
/** One for each pod: all of 127.0.0.0/8 is this machine on Linux. */
const HOSTS = ['127.12.0.1', '127.12.0.2', '127.12.0.3'];
const NAMES = ['valkey.sh', 'sentinel.sh'] as const;

const has = (command: string) => spawnSync(command, ['--version']).error === undefined;
const skip =
  has('valkey-server') && has('valkey-cli') && process.platform === 'linux'
    ? false
    : 'needs valkey-server and valkey-cli on Linux: apt-get install valkey-server (Debian: backports)';

/** Asks a Valkey. @returns its reply by line; none where it does not answer */
function ask(host: string, ...command: string[]): string[] {
  const { stdout, status } = spawnSync('valkey-cli', ['-h', host, ...command], {
    encoding: 'utf8',
    timeout: 5000,
  });
  return status === 0 ? stdout.trim().split('\n') : [];
}

const roleOf = (host: string) => ask(host, '-p', '6379', 'role')[0];
const primaryAt = (host: string) =>
  ask(host, '-p', '26379', 'sentinel', 'get-master-addr-by-name', 'ragen')[0];

async function until<Value>(what: string, get: () => Value | undefined | false): Promise<Value> {
  for (const end = performance.now() + 60_000; performance.now() < end; await sleep(250)) {
    const value = get();
    if (value !== undefined && value !== false) return value;
  }
  throw new Error(`not within a minute: ${what}`);
}

t.test(
  'the scripts of the pods: a lost primary, its return, and the loss of all',
  { skip, timeout: 240_000 },
  async t => {
    const folder = mkdtempSync(join(tmpdir(), 'ragen-pods-'));
    const running = new Map<string, ChildProcess[]>();
    const stop = async (host: string) => {
      const ended = running.get(host)!.map(child => {
        const exit = new Promise(resolve => child.once('exit', resolve));
        return child.exitCode === null && child.kill('SIGKILL') ? exit : undefined;
      });
      running.delete(host);
      await Promise.all(ended);
    };
    t.teardown(async () => {
      for (const host of running.keys()) await stop(host);
      rmSync(folder, { recursive: true, force: true });
    });
    const scripts = parseAllDocuments(readFileSync(MANIFEST, 'utf8'))[0].toJS() as {
      data: Record<string, string>;
    };
    for (const name of NAMES) writeFileSync(join(folder, name), scripts.data[name]);
    const start = (host: string) => {
      const DATA = join(folder, host);
      mkdirSync(DATA, { recursive: true });
      const env = { ...process.env, HOST: host, HOSTS: HOSTS.join(' '), DATA, BIND: host };
      running.set(
        host,
        NAMES.map(name => spawn('sh', [join(folder, name)], { env, stdio: 'ignore' })),
      );
    };
    const agreed = () => {
      const [first, ...others] = [...running.keys()].map(primaryAt);
      return first !== undefined && others.every(one => one === first) && roleOf(first) === 'master' && first;
    };
    const replicas = (primary: string) =>
      ask(primary, '-p', '6379', 'info', 'replication').find(line => line.startsWith('connected_slaves:'));
    const write = (primary: string, key: string) =>
      until(`${key} is written`, () => ask(primary, '-p', '6379', 'set', key, 'kept')[0] === 'OK');

    for (const host of HOSTS) start(host);
    const first = await until('Sentinels agree', agreed);
    t.equal(first, HOSTS[0]);
    await until('both replicas are there', () => replicas(first)?.trim() === 'connected_slaves:2');
    // A Sentinel must know the others before it can act with them.
    await until('Sentinels know one another', () =>
      HOSTS.every(host =>
        ask(host, '-p', '26379', 'info', 'sentinel').some(line => line.includes('slaves=2,sentinels=3')),
      ),
    );
    await write(first, 'one');
    ask(first, '-p', '6379', 'wait', '2', '5000');

    await stop(first);
    const second = await until('another one is the primary', () => {
      const primary = agreed();
      return primary !== first && primary;
    });
    t.same(ask(second, '-p', '6379', 'get', 'one'), ['kept']);
    await write(second, 'two');

    start(first);
    await until('the lost one is back as a replica', () => roleOf(first) === 'slave');
    t.same(
      await until('it has what it missed', () => ask(first, '-p', '6379', 'get', 'two')[0] || undefined),
      'kept',
    );

    for (const host of HOSTS) await stop(host);
    for (const host of HOSTS) start(host);
    const third = await until('Sentinels agree after the loss of all', agreed);
    t.equal(third, second, 'the last primary, which has everything, and not the first pod');
    t.same(ask(third, '-p', '6379', 'mget', 'one', 'two'), ['kept', 'kept']);
  },
);
