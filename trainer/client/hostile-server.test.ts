import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { WebSocketServer } from 'ws';
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
  await new Promise<void>(resolve => http.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    for (const socket of sockets.clients) socket.terminate();
    http.close();
  });
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const server = new EnvServer({ url, transport, retry: { patienceMs: 50, baseMs: 1 } });
  t.teardown(() => server.close());
  return server;
}

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
  });

  t.test(`${transport}: an error cannot steer the terminal`, async t => {
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
    const settings = { socket: { replyTimeoutMs: 50 }, retry: { patienceMs: 50, attempts: 1 } };
    const impatient = new EnvServer({ url: server.name, ...settings });
    t.teardown(() => impatient.close());
    const error = (await impatient.batched('step', STEP_INPUT).catch(error => error)) as Error;
    // What has the form of a frame and answers nothing is not waited for any longer than others.
    t.match(error.name, frame.startsWith('{') || frame === '[]' ? 'ReplyTimeout' : 'BadReply', frame);
  }
});
