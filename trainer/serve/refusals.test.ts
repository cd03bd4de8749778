import pino from 'pino';
import t from 'tap';
import { until } from '../../test/until.test-data.ts';
import { createServeApp } from './app.ts';
import { ADMIN, goldenFolder, startServer } from './serve.test-data.ts';

const folder = goldenFolder('qwen2-tiny');
const messages = [{ role: 'user', content: 'hi' }];

t.test('wrong requests are answered in the form of OpenAI', async t => {
  const { request } = await startServer(t, folder);
  const cases: [method: string, path: string, body: unknown, status: number, param: string | null][] = [
    ['POST', '/v1/chat/completions', {}, 400, 'messages'],
    ['POST', '/v1/chat/completions', { messages, model: 'gone' }, 404, 'model'],
    ['POST', '/v1/chat/completions', { messages, max_tokns: 3 }, 400, 'max_tokns'],
    ['POST', '/v1/chat/completions', { messages, temperature: 1e9 }, 400, 'temperature'],
    ['POST', '/v1/chat/completions', { messages, top_logprobs: 2 }, 400, 'top_logprobs'],
    ['POST', '/v1/chat/completions', { messages, tool_choice: 'required', tools: [] }, 400, 'tool_choice'],
    [
      'POST',
      '/v1/chat/completions',
      { messages, stream_options: { include_usage: true } },
      400,
      'stream_options',
    ],
    [
      'POST',
      '/v1/chat/completions',
      { messages, response_format: { type: 'json_schema' } },
      400,
      'response_format',
    ],
    [
      'POST',
      '/v1/chat/completions',
      {
        messages,
        response_format: { type: 'json_schema', json_schema: { schema: { type: 'string', pattern: 'a' } } },
      },
      400,
      'response_format',
    ],
    [
      'POST',
      '/v1/chat/completions',
      { messages, continue_final_message: true },
      400,
      'continue_final_message',
    ],
    ['POST', '/v1/chat/completions', '{"messages":', 400, null],
    ['POST', '/v1/completions', {}, 400, 'prompt'],
    ['POST', '/v1/completions', { prompt: '' }, 400, 'prompt'],
    ['POST', '/v1/completions', { prompt: [1_000_000] }, 400, 'prompt'],
    ['POST', '/v1/completions', { prompt: Array(5000).fill(3) }, 400, 'prompt'],
    ['POST', '/v1/completions', { prompt: [3], max_tokens: 0 }, 400, 'max_tokens'],
    ['POST', '/v1/completions', { prompt: [3], n: 128, model: 'base' }, 400, 'prompt'],
    ['POST', '/v1/chat/completions', { messages, n: 128 }, 400, 'n'],
    [
      'POST',
      '/v1/completions',
      { prompt: [3], token_grammar: { start: 5, states: [] } },
      400,
      'token_grammar',
    ],
    ['POST', '/tokenize', {}, 400, 'prompt'],
    ['POST', '/detokenize', { tokens: [999_999] }, 400, 'tokens'],
    ['GET', '/v1/models/gone', undefined, 404, 'model'],
    ['GET', '/v1/nothing', undefined, 404, null],
    ['DELETE', '/v1/completions', undefined, 404, null],
  ];
  for (const [method, path, body, status, param] of cases) {
    const reply = await request(method, path, body);
    const shown = `${method} ${path} ${JSON.stringify(body)?.slice(0, 80)}`;
    t.equal(reply.status, status, shown);
    const { error } = reply.body;
    t.same(Object.keys(error).sort(), ['code', 'message', 'param', 'type'], shown);
    t.equal(error.param, param, shown);
    t.ok(error.message.length > 10, shown);
  }
});

t.test('a browser at the address of the server reads who it is for', async t => {
  const { request } = await startServer(t, folder);
  const { body } = await request('GET', '/');
  t.match(body.error.message, /there is no GET \/ here: programs use OpenAI's API, such as POST/);
});

t.test('fields without an effect are named in a header', async t => {
  const { request } = await startServer(t, folder);
  const { status, headers } = await request('POST', '/v1/completions', {
    prompt: [3],
    max_tokens: 1,
    user: 'me',
  });
  t.equal(status, 200);
  t.equal(headers.get('x-ragen-without-effect'), 'user');
});

t.test('a body beyond the limit is refused', async t => {
  const { request } = await startServer(t, folder);
  const { status, body } = await request('POST', '/v1/completions', { prompt: 'x'.repeat(5 * 2 ** 20) });
  t.equal(status, 413);
  t.equal(body.error.type, 'invalid_request_error');
});

t.test('a text that cannot fit the context is refused before it is tokenized', async t => {
  const { models, request } = await startServer(t, folder);
  const { encoder } = models.base;
  const { encode } = encoder;
  let tokenized = 0;
  encoder.encode = (text, ...rest) => {
    tokenized += text.length;
    return encode.call(encoder, text, ...rest);
  };
  const text = 'x'.repeat(2 ** 20);
  for (const [path, body, param] of [
    ['/v1/completions', { prompt: text }, 'prompt'],
    ['/v1/completions', { prompt: ['x', text] }, 'prompt'],
    ['/v1/chat/completions', { messages: [{ role: 'user', content: text }] }, 'messages'],
    ['/tokenize', { prompt: text }, 'prompt'],
    ['/tokenize', { messages: [{ role: 'user', content: text }] }, 'messages'],
  ] as const) {
    const { status, body: reply } = await request('POST', path, body);
    t.equal(status, 400, path);
    t.equal(reply.error.code, 'context_length_exceeded', path);
    t.equal(reply.error.param, param, path);
  }
  t.equal(tokenized, 1);
});

t.test('more token ids than are decoded at once are refused with their number', async t => {
  const { request } = await startServer(t, folder);
  const { status, body } = await request('POST', '/detokenize', { tokens: new Array(2 ** 17 + 1).fill(3) });
  t.equal(status, 400);
  t.equal(body.error.param, 'tokens');
  t.match(body.error.message, /131073 tokens are more than 131072/);
});

t.test('more prompts than choices are refused before any is tokenized', async t => {
  const { models, request } = await startServer(t, folder, { maxStreams: 4 });
  models.base.encoder.encode = () => t.fail('a prompt is tokenized') as never;
  const { status, body } = await request('POST', '/v1/completions', { prompt: ['a', 'b', 'c'], n: 2 });
  t.equal(status, 400);
  t.match(body.error.message, /3 prompts times n = 2 are more than 4 choices/);
});

t.test('requests beyond the capacity get 429 and Retry-After, and room when others are over', async t => {
  const { request } = await startServer(t, folder, { maxStreams: 4 });
  const body = { prompt: [3, 4], max_tokens: 30, ignore_eos: true };
  const first = request('POST', '/v1/completions', { ...body, n: 4 });
  const replies = await Promise.all(
    Array.from({ length: 4 }, () => request('POST', '/v1/completions', body)),
  );
  const refused = replies.filter(({ status }) => status === 429);
  t.ok(refused.length > 0);
  t.equal(refused[0].headers.get('retry-after'), '1');
  t.equal(refused[0].body.error.type, 'rate_limit_error');
  t.equal((await first).status, 200);
  t.equal((await request('POST', '/v1/completions', body)).status, 200);
});

t.test('a request takes its slots before its prompt is tokenized', async t => {
  const { models, request } = await startServer(t, folder, { maxStreams: 2 });
  const { encoder } = models.base;
  const { promise: tokenized, resolve: goOn } = Promise.withResolvers<void>();
  encoder.encode = () => tokenized.then(() => [3]);
  const bodies = { '/v1/completions': { prompt: 'a', max_tokens: 1 }, '/tokenize': { prompt: 'a' } };
  const paths = Object.entries(bodies);
  const open = paths.map(([path, body]) => request('POST', path, body));
  const refusals = async () => Promise.all(paths.map(([path, body]) => request('POST', path, body)));
  await until(async () => (await refusals()).every(({ status }) => status === 429));
  goOn();
  for (const reply of open) t.equal((await reply).status, 200);
  for (const { status } of await refusals()) t.equal(status, 200, 'the places are free again');
});

t.test('more text of bad words than is tokenized next to sampling is refused', async t => {
  const { request } = await startServer(t, folder);
  const bad_words = Array(5).fill('x'.repeat(1000));
  for (const path of ['/v1/completions', '/v1/chat/completions']) {
    const messages = [{ role: 'user', content: 'a' }];
    const body = path.includes('chat') ? { messages, bad_words } : { prompt: 'a', bad_words };
    const { status, body: reply } = await request('POST', path, body);
    t.equal(status, 400);
    t.match(reply.error, { param: 'bad_words', message: /5000 characters together; the limit is 4096/ });
  }
});

t.test('a server with a token answers only requests with it', async t => {
  const { request } = await startServer(t, folder, { token: 'secret' });
  const path = '/v1/models';
  t.equal((await request('GET', path)).status, 401);
  const wrong = await request('GET', path, undefined, { authorization: 'Bearer wrong' });
  t.equal(wrong.status, 401);
  t.equal(wrong.body.error.type, 'authentication_error');
  t.equal((await request('GET', path, undefined, { authorization: 'Bearer secret' })).status, 200);
  t.equal((await request('GET', '/health')).status, 200);
});

t.test('a server without a token answers this machine alone', async t => {
  const { models, request } = await startServer(t, folder);
  t.throws(
    () => createServeApp({ models, maxStreams: 1, logLevel: 'silent', host: '0.0.0.0' }),
    /can be reached from other machines: set a token/,
  );
  t.equal((await request('GET', '/v1/models')).status, 200);
  const { url } = await startServer(t, folder);
  const { port } = new URL(url);
  const status = await new Promise<number | undefined>((resolve, reject) => {
    import('node:http').then(({ get }) => {
      get({ host: '127.0.0.1', port, path: '/v1/models', headers: { host: 'evil.example' } }, reply => {
        reply.resume();
        resolve(reply.statusCode);
      }).on('error', reject);
    });
  });
  t.equal(status, 403);
});

t.test('the log of requests leaves out their queries', async t => {
  const { models } = await startServer(t, folder);
  const app = createServeApp({ models, maxStreams: 1, logLevel: 'info', host: '127.0.0.1' });
  t.teardown(() => app.close());
  const { req } = (app.log as unknown as { [pino.symbols.serializersSym]: typeof pino.stdSerializers })[
    pino.symbols.serializersSym
  ];
  app.get('/logged', async request => req(request as never));
  t.match((await app.inject({ url: '/logged?key=secret' })).json(), { method: 'GET', url: '/logged?…' });
});

t.test('the admin token loads and unloads adapters', async t => {
  const { request, client, models } = await startServer(t, folder);
  const admin = { authorization: `Bearer ${ADMIN}` };
  const load = (lora_name: string, lora_path: string, headers: Record<string, string> = admin) =>
    request('POST', '/v1/load_lora_adapter', { lora_name, lora_path }, headers);
  t.equal((await load('a', `${folder}/lora`, {})).status, 401);
  const loaded = await load('a', `${folder}/lora`);
  t.equal(loaded.status, 200, JSON.stringify(loaded.body));
  t.equal((await load('a', `${folder}/lora`)).status, 400);
  const missing = await load('b', '/nowhere');
  t.equal(missing.status, 400);
  t.equal(missing.body.error.param, 'lora_path');
  t.same(
    (await client.models.list()).data.map(({ id }) => id),
    ['base', 'a'],
  );
  const ask = async (model: string) => {
    const { choices } = await client.completions.create({
      model,
      prompt: [3, 4, 5],
      temperature: 0,
      max_tokens: 16,
    });
    return choices[0].text;
  };
  const adapted = await ask('a');
  t.not(adapted, await ask('base'), 'the adapter has an effect');

  // Requests in progress end under the weights that they began with.
  const open = ask('a');
  const unload = (lora_name: string) => request('POST', '/v1/unload_lora_adapter', { lora_name }, admin);
  t.equal((await unload('a')).status, 200);
  t.equal(await open.catch(() => adapted), adapted);
  t.equal((await unload('a')).status, 404);
  t.equal((await unload('base')).status, 400);
  await t.rejects(ask('a'), /404/);

  // The next one takes the place of the last.
  t.equal((await load('v2', `${folder}/lora`)).status, 200);
  t.equal(await ask('v2'), adapted);
  t.equal((await load('whole', folder)).status, 200, 'a model of the same shape counts as an adapter');
  t.equal(await ask('whole'), await ask('base'));
  t.equal((await load('third', `${folder}/lora`)).status, 200);
  t.match((await load('fourth', `${folder}/lora`)).body.error.message, /3 adapters are loaded, the limit/);
  t.equal(models.all.length, 4);
});

t.test('without an admin token nothing is loaded', async t => {
  const { request } = await startServer(t, folder, { adminToken: undefined });
  const body = { lora_name: 'a', lora_path: folder };
  t.equal((await request('POST', '/v1/load_lora_adapter', body)).status, 403);
});
