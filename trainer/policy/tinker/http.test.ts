import t from 'tap';
import { replyJson as json, hostileServer as opened } from './tinker.test-data.ts';
import { TinkerSession } from './training-session.ts';

t.test('a reply without an end is refused at its limit, and is not requested again', async t => {
  let sent = 0;
  const { http, url, routes } = await opened(t, (_, reply) => {
    reply.writeHead(200, { 'content-type': 'application/x-protobuf' });
    const part = Buffer.alloc(2 ** 16);
    const more = (): void => {
      do sent += part.length;
      while (!reply.destroyed && reply.write(part));
    };
    reply.on('drain', more).on('error', () => {});
    more();
  });
  for (const [purpose, most] of [
    ['training', 2 ** 24],
    ['sampling', 2 ** 20 + 64 * 64],
  ] as const) {
    sent = 0;
    await t.rejects(http.json('POST', 'asample', {}, purpose), {
      name: 'TinkerError',
      message: `${url}: asample: the reply is larger than any that was requested`,
    });
    t.ok(sent > most / 2 && sent < most + 2 ** 24, `${purpose}: ${sent} bytes`);
  }
  t.equal(routes.length, 2);
});

t.test('a reply that comes byte by byte is given up in time', async t => {
  const { http, url } = await opened(
    t,
    (_, reply) => {
      reply.writeHead(200, { 'content-type': 'application/json' });
      const drip = setInterval(() => void reply.write(' '), 20);
      reply.on('close', () => clearInterval(drip));
    },
    { timeoutMs: 100 },
  );
  const began = performance.now();
  await t.rejects(http.json('GET', 'get_server_capabilities'), {
    message: new RegExp(`${url} was not available for 0\\.\\d s: .*the reply was not whole after 0\\.1 s`),
  });
  t.ok(performance.now() - began < 3_000);
});

t.test('results that never come are given up, and not while others come', async t => {
  const waits: string[] = [];
  let finishing = true;
  const { http, url } = await opened(
    t,
    (route, reply) => {
      if (route !== 'retrieve_future') json(reply, { request_id: route });
      else if (finishing) json(reply, { path: 'x' });
      else json(reply, { type: 'try_again', queue_state: 'paused_capacity' }, 408);
    },
    { waiting: { onWaiting: ({ error, waitedMs }) => void (waitedMs === 0 && waits.push(error.message)) } },
  );
  t.same(await (await http.submit('save_weights', {}))(), { path: 'x' });
  finishing = false;
  const began = performance.now();
  const slow = (await http.submit('optim_step', {}))();
  slow.catch(() => {});
  while (performance.now() - began < 1_500) await new Promise(resolve => setTimeout(resolve, 50));
  finishing = true;
  t.same(await slow, { path: 'x' });
  finishing = false;
  const never = await http.submit('optim_step', {});
  const since = performance.now();
  await t.rejects(never(), {
    name: 'TinkerError',
    message: new RegExp(
      `${url}: optim_step is pending, and nothing was finished for \\d\\.\\d s.*policy\\.tinker\\.patience_s.*resume the run`,
    ),
  });
  const took = performance.now() - since;
  t.ok(took > 1_750 && took < 10_000, `${took} ms`);
  t.match(waits, [/optim_step is pending/, /optim_step is pending/], 'each wait is reported once');
  t.equal(waits.length, 2);
});

t.test('a redirect is not followed, so that no other host sees the key', async t => {
  let visits = 0;
  const other = await opened(t, (_, reply) => {
    visits++;
    json(reply, {});
  });
  for (const status of [301, 302, 307, 308]) {
    const { http, url, routes } = await opened(
      t,
      (_, reply) => void reply.writeHead(status, { location: `${other.url}/api/v1/x` }).end(),
    );
    await t.rejects(http.json('POST', 'create_session', {}), {
      message: `${url}: create_session: status ${status}: no reason. It redirects to ${other.url}/api/v1/x: put that server into policy.tinker.url if you trust it`,
    });
    t.same(routes, ['create_session']);
  }
  t.equal(visits, 0);
});

t.test('a key that no header can hold, and words that fill the terminal, end at once', async t => {
  const secret = 'tml-\nsecret';
  const { http, routes } = await opened(t, () => t.fail('nothing is sent'), { apiKey: secret });
  await t.rejects(http.json('POST', 'create_session', {}), {
    message: /^(?!.*secret).*policy\.tinker\.token_env$/,
  });
  t.same(routes, []);
  const loud = await opened(t, (_, reply) => json(reply, { detail: `\u001b[2J${'x'.repeat(1e6)}` }, 400));
  await loud.http.json('POST', 'create_session', {}).then(t.fail, ({ message }: Error) => {
    t.notOk(message.includes('\u001b'));
    t.ok(message.length < 1_000, `${message.length}`);
  });
});

t.test('ids and results of the wrong kind are refused by name', async t => {
  const replies: { [route: string]: object } = {};
  const { http, url } = await opened(t, (route, reply) => {
    const body = replies[route];
    if (!(body instanceof Uint8Array)) return json(reply, body);
    reply.writeHead(200, { 'content-type': 'application/x-protobuf' }).end(body);
  });
  for (const request_id of [undefined, null, 7, '', 'x'.repeat(2_000), ['a']]) {
    replies.asample = { request_id };
    await t.rejects(http.submit('asample', {}), {
      message: new RegExp(`^${url}: asample: the reply has no request_id`),
    });
  }
  replies.asample = { request_id: 'a' };
  replies.retrieve_future = Buffer.from([1]);
  const read = await http.submit('asample', {});
  const result = await read();
  t.throws(() => http.textOf(result, 'path', 'asample'), {
    message: `${url}: asample: a protobuf message came, not JSON`,
  });
  replies.retrieve_future = { error: 'out of memory', category: 'server' };
  await t.rejects(read(), { message: `${url}: asample failed (server): out of memory` });
});

t.test('a fault of the server with an hour of Retry-After does not stop the run for an hour', async t => {
  const began = performance.now();
  const { http } = await opened(t, (_, reply) => {
    reply.writeHead(500, { 'retry-after': '3600' }).end();
  });
  await t.rejects(http.json('POST', 'optim_step', {}), { message: /status 500/ });
  t.ok(performance.now() - began < 3_000);
});

const sessionOptions = (note: (text: string) => void) => {
  const lora = { rank: 4, seed: 1, attention: true, mlp: true };
  return { server: 'ragen', baseModel: 'base', lora, heartbeatMs: 5, note } as const;
};

t.test('heartbeats wait for one another, so that a silent server does not take all connections', async t => {
  const { http, routes } = await opened(
    t,
    (route, reply) => void (route === 'create_session' && json(reply, { session_id: 's' })),
  );
  await TinkerSession.open(http, sessionOptions(t.fail));
  await new Promise(resolve => setTimeout(resolve, 200));
  t.same(routes, ['create_session', 'session_heartbeat']);
});

t.test("a session shows the server's warnings, such as of a model that will be retired", async t => {
  const notes: string[] = [];
  const said: { [name: string]: string } = {
    warning_message: 'base ends\u001b in May',
    info_message: 'hello',
  };
  const { http, url } = await opened(t, (_, reply) => json(reply, { session_id: 's', ...said }));
  await TinkerSession.open(
    http,
    sessionOptions(note => void notes.push(note)),
  );
  t.equal(notes.length, 2);
  t.ok(
    notes[0].startsWith(`${url}: base ends`) && !notes[0].includes('\u001b') && notes[1] === `${url}: hello`,
  );
  said.error_message = 'this key is closed';
  await t.rejects(
    TinkerSession.open(
      http,
      sessionOptions(() => {}),
    ),
    {
      name: 'TinkerError',
      message: `${url}: this key is closed`,
    },
  );
});
