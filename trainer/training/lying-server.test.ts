import { createServer } from 'node:http';
import { buffer } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { WebSocket, WebSocketServer } from 'ws';
import { listenLocally } from '../../test/local-server.test-data.ts';
import { serve } from '../rollout/server.test-data.ts';
import { silentProgress } from '../tracking/progress.ts';
import { MAX_MS, tinySettings, trainingRows, trainTiny } from './runs.test-data.ts';

const STEPS_BETWEEN_LIES = 40;

/** Fields in place of those of a true step, and how the run names them. */
const LIES: { readonly [name: string]: readonly [object, RegExp] } = {
  text: [{ reward: '1' }, /reward must be a number .*, got "1"/],
  huge: [{ reward: 1e300 }, /reward must be a number .*, got 1e\+300/],
  other: [{ session_id: 'other' }, /session_id must be "\w.*", got "other"/],
  long: [{ observation: 'x'.repeat(9_000_000) }, /an observation of 9000000 characters, of at most 8388608/],
  unread: [{ observation: 'x'.repeat(300_000), terminated: false }, /an observation of 300000 characters/],
  words: [{ observation: 'y', terminated: false }, /cannot write "<text>" of FrozenLake-v0/],
};

interface Frame {
  readonly id: number;
  readonly items?: readonly { readonly op: string }[];
  readonly result?: { readonly results?: { readonly ok: boolean; result?: object }[] };
}

/** A server in front of another that answers truly but for some steps, in which `lie` changes fields. */
async function lyingServer(t: Test, real: string) {
  const self = { url: '', steps: 0, lie: {} as object };
  const http = createServer(async (request, response) => {
    const body = await buffer(request);
    const headers = { 'content-type': 'application/json' };
    const sent = { method: request.method, ...(body.length > 0 && { headers, body }) };
    const reply = await fetch(real + request.url, sent);
    response.writeHead(reply.status, headers).end(await reply.text());
  });
  const sockets = new WebSocketServer({ server: http });
  sockets.on('connection', (client, { url }) => {
    const server = new WebSocket(real.replace('http', 'ws') + url, 'ragen.json');
    const open = new Promise(resolve => server.once('open', resolve));
    const asked = new Map<number, Frame>();
    client.on('message', async data => {
      const frame = JSON.parse(String(data)) as Frame;
      asked.set(frame.id, frame);
      await open;
      server.send(String(data));
    });
    server.on('message', data => {
      const frame = JSON.parse(String(data)) as Frame;
      const { items = [] } = asked.get(frame.id) ?? {};
      for (const [i, entry] of (frame.result?.results ?? []).entries()) {
        if (items[i].op !== 'step' || !entry.ok || ++self.steps % STEPS_BETWEEN_LIES !== 0) continue;
        entry.result = { ...entry.result, ...self.lie };
      }
      client.send(JSON.stringify(frame));
    });
    client.on('close', () => server.terminate());
  });
  self.url = (await listenLocally(t, http)).url;
  t.teardown(() => {
    for (const socket of sockets.clients) socket.terminate();
  });
  return self;
}

t.test(
  'a run loses the groups of a server that lies by name, and continues',
  { timeout: MAX_MS },
  async t => {
    const server = await lyingServer(t, (await serve(t)).servers[0].name);
    for (const [name, [lie, reason]] of Object.entries(LIES)) {
      server.lie = lie;
      server.steps = STEPS_BETWEEN_LIES / 2;
      const said: string[] = [];
      const settings = tinySettings(server.url, t.testdir(), name, { rollout: { constrained: true } });
      const run = await trainTiny(settings, { ...silentProgress, warn: text => said.push(text) });
      const lost = said.filter(text => text.startsWith('group of Lake'));
      t.ok(lost.length > 0, `${name}: ${server.steps} steps`);
      for (const text of lost) t.match(text, reason, name);
      const rows = trainingRows(run);
      t.equal(rows.length, 2, name);
      for (const row of rows) t.ok(row['rollouter/dropped_groups'] < 4, name);
    }
  },
);
