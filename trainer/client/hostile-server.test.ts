import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import t, { type Test } from 'tap';
import { WebSocketServer } from 'ws';
import { listenLocally, serveHttp } from '../../test/local-server.test-data.ts';
import { MAX_REPLY_BYTES } from './reply.ts';
import { EnvServer } from './server.ts';

/** A server that answers every frame and request with a text that a function makes for its id. */
async function hostile(t: Test, answer: (id: unknown) => string, transport: 'websocket' | 'http') {
  const http = createServer((request, response) => {
    request.resume();
    response.setHeader('content-type', 'application/json').end(answer(undefined));
  });
  const sockets = new WebSocketServer({ server: http });
  sockets.on('connection', socket => {
    socket.on('message', frame => socket.send(answer(JSON.parse(String(frame)).id)));
  });
  const { url } = await listenLocally(t, http);
  t.teardown(() => {
    for (const socket of sockets.clients) socket.terminate();
  });
  const server = new EnvServer({ url, transport, retry: { patienceMs: 50, baseMs: 1 } });
  t.teardown(() => server.close());
  return server;
}

const LONG_MS = 120_000;

const STEP = {
  session_id: 's',
  episode_id: 'e',
  observation: 'x',
  reward: 1,
  terminated: false,
  truncated: false,
  info: {},
};

/** A batch with one result, as a frame or as a REST reply. */
const batchOf = (entry: unknown) => (id: unknown) => {
  const result = { results: [entry] };
  return JSON.stringify(id === undefined ? result : { id, ok: true, result });
};
const stepWith = (fields: object) => batchOf({ ok: true, result: { ...STEP, ...fields } });
/** The fields as JSON text, for numbers that JSON.stringify does not write. */
const stepText = (reward: string) => (id: unknown) => stepWith({ reward: 0.25 })(id).replace('0.25', reward);

const STEP_INPUT = { session_id: 's', action: 'Up' };

for (const transport of ['websocket', 'http'] as const) {
  t.test(`${transport}: a reward that is not a sensible number is refused by name`, async t => {
    for (const [reward, got] of [
      ['"1"', /got "1"/],
      ['NaN', transport === 'http' ? /not a reply/ : /a frame with something that is not a reply/],
      ['1e308', /got 1e\+308/],
      ['-1e13', /got -10000000000000/],
      ['1e999', /got Infinity/],
      ['null', /got null/],
    ] as const) {
      const server = await hostile(t, stepText(reward), transport);
      const error = (await server.batched('step', STEP_INPUT).catch(error => error)) as Error;
      t.match(error, { name: 'BadReply', message: got }, reward);
      if (reward !== 'NaN')
        t.match(error.message, /reward must be a number from -1000000000000 to 1000000000000/);
    }
    const fair = await hostile(t, stepWith({ reward: -1e12 }), transport);
    t.equal((await fair.batched('step', STEP_INPUT)).reward, -1e12);
  });

  t.test(`${transport}: results of another form are refused by name`, async t => {
    for (const [answer, message] of [
      [stepWith({ terminated: 'no' }), /terminated must be true or false, got "no"/],
      [stepWith({ session_id: 'other' }), /session_id must be "s", got "other"/],
      [stepWith({ observation: undefined }), /observation must be a text, an object or .*, got nothing/],
      [stepWith({ observation: [null] }), /observation must be .*, got \[null\]/],
      [stepWith({ info: { success: 'yes' } }), /info.success must be true or false, got "yes"/],
      [stepWith({ info: null }), /null in the place of an object/],
      [batchOf({ ok: true, result: null }), /answered step with .*null in the place of an object/],
      [batchOf(null), /answered batch with .*null/],
      [
        batchOf({ ok: false, error: { code: 'a', status: 400, detail: 'b', errors: [null] } }),
        /answered batch/,
      ],
    ] as const) {
      const server = await hostile(t, answer, transport);
      await t.rejects(server.batched('step', STEP_INPUT), { name: 'BadReply', message });
    }
    const server = await hostile(t, batchOf({ ok: true, result: { sessions: [{}] } }), transport);
    const created = server.batched('create', { env_id: 'A-v0' });
    await t.rejects(created, { name: 'BadReply', message: /session_id must be a string, got nothing/ });
    const two = server.batched('clone', { session_id: 's', count: 2 });
    await t.rejects(two, { name: 'BadReply', message: /1 sessions for a count of 2/ });
    const plan = server.batched('reference', { session_id: 's', policy: 'random' });
    await t.rejects(plan, { name: 'BadReply', message: /actions must be a list, got nothing/ });
  });

  t.test(`${transport}: an error cannot control the terminal`, async t => {
    const detail = '\x1b]0;owned\x07\x1b[2Jdone\r\nragen: all is well';
    const error = { code: 'unknown_session', status: 404, detail, errors: [{ pointer: '\x1b', detail: '' }] };
    const server = await hostile(t, batchOf({ ok: false, error }), transport);
    const problem = (await server.batched('step', STEP_INPUT).catch(error => error)) as Error;
    t.equal(problem.name, 'ServerProblem');
    t.match(problem.message, /\\u001b\]0;owned/);
    t.notMatch(problem.message, /\p{Cc}/u);
  });
}

t.test('a frame that is not an object is refused by name', async t => {
  for (const frame of ['null', '7', '"x"', '[]', '{"id":null,"ok":false,"error":null}']) {
    const server = await hostile(t, () => frame, 'websocket');
    const isSilent = frame.startsWith('{') || frame === '[]';
    const socket = { replyTimeoutMs: isSilent ? 50 : LONG_MS };
    const settings = { socket, retry: { patienceMs: 50, attempts: 1 } };
    const impatient = new EnvServer({ url: server.name, ...settings });
    t.teardown(() => impatient.close());
    const error = (await impatient.batched('step', STEP_INPUT).catch(error => error)) as Error;
    // What has the form of a frame and answers nothing is not waited for any longer than others.
    t.match(error.name, isSilent ? 'ReplyTimeout' : 'BadReply', frame);
  }
});

/** A client of a server that answers every request with what a function writes. */
async function answering(t: Test, answer: (response: ServerResponse) => void) {
  const { url } = await serveHttp(t, (_request, response) => {
    response.on('error', () => response.destroy());
    answer(response);
  });
  return {
    /** @param replyTimeoutMs long where the reply comes in time on any machine */
    step: async (replyTimeoutMs: number) => {
      const retry = { patienceMs: 50, baseMs: 1, attempts: 2 };
      const server = new EnvServer({ url, transport: 'http', retry, http: { replyTimeoutMs } });
      t.teardown(() => server.close());
      return (await server.batched('step', STEP_INPUT).catch(error => error)) as Error;
    },
  };
}

/** Calls a function until the reply's connection is closed. */
function withoutEnd(response: ServerResponse, write: () => void): void {
  const timer = setInterval(write, 20);
  response.on('close', () => clearInterval(timer));
}

t.test('a reply that grows without end is late, however often a byte comes', async t => {
  const { step } = await answering(t, response => {
    response.writeHead(200);
    withoutEnd(response, () => response.write(' '));
  });
  t.equal((await step(200)).name, 'ReplyTimeout');
});

t.test('the page of a proxy is waited for, like a server that is away', async t => {
  const { step } = await answering(t, response => response.writeHead(503).end('<html>'));
  t.match(await step(LONG_MS), {
    name: 'ServerUnavailable',
    message: /a proxy answered batch with status 503/,
  });
  const { step: other } = await answering(t, response => response.writeHead(500).end('<html>'));
  t.match(await other(LONG_MS), { name: 'BadReply', message: /status 500, <html>/ });
});

t.test('interim replies without end are no reply', async t => {
  const { step } = await answering(t, response => withoutEnd(response, () => response.writeProcessing()));
  t.match(await step(LONG_MS), { name: 'ServerUnavailable', message: /interim replies without end/ });
});

t.test('a reply and a frame beyond the limit in bytes are refused by name', async t => {
  const chunk = Buffer.alloc(1024 * 1024, ' ');
  const { step } = await answering(t, response => {
    Readable.from(Array.from({ length: 101 }, () => chunk)).pipe(response);
  });
  const message = /more than 104857600 bytes/;
  t.match(await step(LONG_MS), { name: 'BadReply', message });
  const sockets = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  t.teardown(() => sockets.close());
  sockets.on('connection', socket => {
    socket.on('error', () => socket.terminate());
    socket.on('message', () => socket.send(Buffer.alloc(MAX_REPLY_BYTES + 1)));
  });
  await new Promise(resolve => sockets.on('listening', resolve));
  const url = `http://127.0.0.1:${(sockets.address() as AddressInfo).port}`;
  const server = new EnvServer({ url, retry: { patienceMs: LONG_MS } });
  t.teardown(() => server.close());
  await t.rejects(server.batched('step', STEP_INPUT), { name: 'BadReply', message });
});

t.test('values nested without end are refused by name', async t => {
  const deep = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`;
  for (const transport of ['http', 'websocket'] as const) {
    for (const levels of [200, 100_000]) {
      const answer = (id: unknown) => stepWith({ observation: 'DEEP' })(id).replace('"DEEP"', deep(levels));
      const server = await hostile(t, answer, transport);
      await t.rejects(server.batched('step', STEP_INPUT), { name: 'BadReply' }, `${transport} ${levels}`);
    }
    const fair = (id: unknown) => stepWith({ observation: 'DEEP' })(id).replace('"DEEP"', deep(64));
    const server = await hostile(t, fair, transport);
    t.equal((await server.batched('step', STEP_INPUT)).reward, 1);
  }
});
