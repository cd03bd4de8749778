import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import t from 'tap';
import { parseAllDocuments } from 'yaml';
import type { Body } from '../../../test/app.test-data.ts';
import { freePort } from '../../../test/free-port.test-data.ts';
import { listening, runServer } from '../../../test/process.test-data.ts';
import { SELDOM_MS, until } from '../../../test/until.test-data.ts';

/** Seven programs start, and Sentinels take their time. */
t.setTimeout(900_000);

const lacking =
  process.platform !== 'linux'
    ? 'needs Linux, where 127.0.0.2 is this machine'
    : ['valkey-server', 'valkey-sentinel', 'valkey-cli'].some(
        name => spawnSync(name, ['--version']).status !== 0,
      ) && 'needs valkey-server and valkey-sentinel: apt-get install valkey-server valkey-sentinel';
const PODS = ['127.0.0.2', '127.0.0.3', '127.0.0.4'];

const objects = parseAllDocuments(
  readFileSync(join(import.meta.dirname, 'valkey-sentinel.yaml'), 'utf8'),
).map(document => document.toJS() as Body);
const of = (kind: string): Body => objects.find(object => String(object.kind) === kind)!;

t.test(
  'the scripts of the pods: first start, loss of the primary, its return, and a stop of everything',
  {
    skip: lacking,
  },
  async t => {
    const folder = mkdtempSync(join(tmpdir(), 'ragen-pods-'));
    for (const [name, text] of Object.entries(of('ConfigMap').data))
      writeFileSync(join(folder, name), String(text));
    const [PORT, SENTINEL_PORT] = [await freePort(), await freePort()].map(String);
    const running = new Map<string, ChildProcess[]>();
    const start = (pod: string) => {
      mkdirSync(join(folder, pod), { recursive: true });
      const own = { ME: pod, PODS: PODS.join(' '), PORT, SENTINEL_PORT, BIND: pod, MEMORY: '100mb' };
      const env = { ...process.env, ...own, DATA: join(folder, pod), SCRIPTS: folder };
      const scripts = ['valkey.sh', 'sentinel.sh'].map(name =>
        spawn('sh', [join(folder, name)], { env, stdio: 'ignore' }),
      );
      running.set(pod, scripts);
    };
    const kill = async (pod: string) => {
      const ended = running.get(pod)!.map(child => once(child, 'exit'));
      for (const child of running.get(pod)!) child.kill('SIGKILL');
      await Promise.all(ended);
      running.delete(pod);
    };
    t.teardown(async () => {
      for (const pod of [...running.keys()]) await kill(pod);
      rmSync(folder, { recursive: true, force: true });
    });
    const cli = (host: string, port: string, ...words: string[]): string =>
      spawnSync('valkey-cli', ['-h', host, '-p', port, '--raw', ...words], {
        encoding: 'utf8',
      }).stdout.trim();
    const primary = (asked: string) =>
      cli(asked, SENTINEL_PORT, 'sentinel', 'get-master-addr-by-name', 'ragen').split('\n')[0];
    const replicas = (pod: string) =>
      Number(/^connected_slaves:(\d)/m.exec(cli(pod, PORT, 'info', 'replication'))?.[1]);

    for (const pod of PODS) start(pod);
    await until(() => replicas(PODS[0]) === 2, SELDOM_MS);
    t.equal(primary(PODS[2]), PODS[0], 'pod 0 is the first primary');
    await until(
      () =>
        PODS.every(
          pod =>
            Number(
              /num-other-sentinels\n(\d)/.exec(cli(pod, SENTINEL_PORT, 'sentinel', 'master', 'ragen'))?.[1],
            ) === 2,
        ),
      SELDOM_MS,
    );

    const store = `valkey+sentinel://${PODS.map(pod => `${pod}:${SENTINEL_PORT}`).join(',')}/ragen`;
    /** Each fail-over is met by a server that starts then; one that stays connected is in env-server/store/sentinel.test.ts. */
    const serve = async () =>
      (await listening(runServer(t, ['--port', '0', '--store', store, '--durability', 'replicated']))).origin;
    let origin = await serve();
    const post = async (
      path: string,
      body: unknown,
      key: string,
    ): Promise<{ status: number; body: Body }> => {
      const response = await fetch(`${origin}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': key },
        body: JSON.stringify(body),
      });
      return { status: response.status, body: (await response.json()) as Body };
    };
    const config = { map: '4x4', success_rate: 1, max_steps: 100 };
    const opened = await post('/v1/sessions', { env_id: 'FrozenLake-v0', seed: 3, config }, 'open');
    t.equal(opened.status, 201, JSON.stringify(opened.body));
    /** A step is asked for under one key until the store is back: the store may have it, though the reply says 503. */
    const path = `/v1/sessions/${opened.body.session_id}/step`;
    let steps = 0;
    const step = async () => {
      for (;;) {
        const { status, body } = await post(path, { action: 1 }, `step-${steps}`);
        if (status !== 503) {
          t.equal(status, 200, JSON.stringify(body));
          return t.equal(Number(body.step), ++steps, 'each acknowledged step was taken once');
        }
        await delay(SELDOM_MS);
      }
    };
    await step();

    await kill(PODS[0]);
    await until(() => primary(PODS[1]) !== PODS[0], SELDOM_MS);
    const second = primary(PODS[1]);
    await until(() => replicas(second) === 1, SELDOM_MS);
    origin = await serve();
    await step();
    start(PODS[0]);
    await until(() => replicas(second) === 2, SELDOM_MS);
    t.match(cli(PODS[0], PORT, 'info', 'replication'), /^role:slave/m, 'it comes back as a replica');
    await step();

    for (const pod of PODS) await kill(pod);
    for (const pod of PODS) start(pod);
    await until(() => replicas(second) === 2, SELDOM_MS);
    t.equal(primary(PODS[0]), second, 'all pods remember the primary');
    origin = await serve();
    await step();
  },
);

t.test('the store of the page is the one in the settings of the servers', async t => {
  const [valkey, sentinel] = (of('StatefulSet').spec.template.spec.containers as unknown as Body[]).map(
    container => (container.ports as unknown as Body[])[0].containerPort as unknown,
  );
  t.same([valkey, sentinel], [6379, 26379]);
  const [first] = readFileSync(join(import.meta.dirname, 'valkey-sentinel.yaml'), 'utf8').split('---');
  const address = /RAGEN_STORE: (\S+)/.exec(first)![1];
  t.match(
    address,
    new RegExp(`^valkey\\+sentinel://ragen-valkey-0\\.${of('Service').metadata.name}:${sentinel},`),
  );
});
