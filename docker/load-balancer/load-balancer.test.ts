import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { WebSocket } from 'ws';
import { lacksValkey, testValkey } from '../../env-server/store/valkey.test-data.ts';
import type { Body } from '../../test/app.test-data.ts';
import { freePort } from '../../test/free-port.test-data.ts';
import { listening, runServer } from '../../test/process.test-data.ts';
import { until } from '../../test/until.test-data.ts';

/** Three programs start. */
t.setTimeout(300_000);

const lacksNginx = spawnSync('nginx', ['-v']).status !== 0 && 'needs nginx: apt-get install nginx-light';

t.test(
  'nginx before three servers: each step at another one, over REST and WebSocket, and one is killed',
  {
    skip: lacksNginx || lacksValkey,
  },
  async t => {
    const folder = mkdtempSync(join(tmpdir(), 'ragen-nginx-'));
    const { address } = await testValkey(t);
    const children = [1, 2, 3].map(() => runServer(t, ['--port', '0', '--store', address]));
    const servers = await Promise.all(children.map(listening));
    const port = await freePort();
    let conf = readFileSync(join(import.meta.dirname, 'nginx.conf'), 'utf8').replace(
      '127.0.0.1:8080',
      `127.0.0.1:${port}`,
    );
    for (const [i, { origin }] of servers.entries())
      conf = conf.replace(`127.0.0.1:808${i + 1}`, new URL(origin).host);
    writeFileSync(join(folder, 'nginx.conf'), conf);
    const globals = `daemon off; pid ${folder}/pid; error_log ${folder}/errors;`;
    const nginx = spawn('nginx', ['-c', join(folder, 'nginx.conf'), '-g', globals], {
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    t.teardown(async () => {
      const ended = once(nginx, 'exit');
      nginx.kill('SIGTERM');
      await ended;
      rmSync(folder, { recursive: true, force: true });
    });
    const origin = `http://127.0.0.1:${port}`;
    const ask = async (path: string, body?: unknown): Promise<{ status: number; body: Body }> => {
      const response = await fetch(`${origin}${path}`, {
        method: body === undefined ? 'GET' : 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': crypto.randomUUID() },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
      return { status: response.status, body: (await response.json()) as Body };
    };
    await until(() =>
      ask('/readyz').then(
        ({ status }) => status === 200,
        () => false,
      ),
    );

    const taken = async () => {
      let sum = 0;
      for (const server of servers) {
        const text = await fetch(`${server.origin}/metrics`).then(
          response => response.text(),
          () => '',
        );
        sum += Number(/^ragen_sessions_taken_total (\d+)/m.exec(text)?.[1] ?? 0);
      }
      return sum;
    };
    // Against the wall, over and over: an episode that does not end.
    const config = { map: '4x4', success_rate: 1, max_steps: 100 };
    const opened = await ask('/v1/sessions', { env_id: 'FrozenLake-v0', seed: 3, config });
    t.equal(opened.status, 201, JSON.stringify(opened.body));
    const path = `/v1/sessions/${opened.body.session_id}`;
    const action = 1;
    let steps = 0;
    const step = async () => {
      const { status, body } = await ask(`${path}/step`, { action });
      t.equal(status, 200, JSON.stringify(body));
      t.equal(Number(body.step), ++steps, 'each step is taken once');
    };
    for (let i = 0; i < 9; i++) await step();
    t.ok((await taken()) >= 6, 'steps went to different servers');

    const socket = new WebSocket(`${origin.replace('http', 'ws')}/v1/ws`);
    await once(socket, 'open');
    socket.send(JSON.stringify({ id: 1, op: 'step', session_id: opened.body.session_id, action }));
    const [frame] = (await once(socket, 'message')) as [Buffer];
    t.match(JSON.parse(String(frame)), { id: 1, result: { step: ++steps } });
    socket.close();

    children[0].kill('SIGKILL');
    await once(children[0], 'exit');
    for (let i = 0; i < 6; i++) await step();
  },
);
