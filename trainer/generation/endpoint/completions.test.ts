import type { ServerResponse } from 'node:http';
import t, { type Test } from 'tap';
import { serveHttp } from '../../../test/local-server.test-data.ts';
import { Completions, type EndpointSettings } from './completions.ts';

interface ReceivedRequest {
  readonly path: string;
  readonly authorization: string | undefined;
  readonly body: { readonly [key: string]: unknown };
}

/** An endpoint that answers as the test says. */
async function endpoint(
  t: Test,
  answer: (request: ReceivedRequest, response: ServerResponse, count: number) => void | Promise<void>,
  part: Partial<EndpointSettings> = {},
) {
  const asked: ReceivedRequest[] = [];
  const { url } = await serveHttp(t, async (incoming, response, text) => {
    const one = {
      path: incoming.url!,
      authorization: incoming.headers.authorization,
      body: JSON.parse(text) as ReceivedRequest['body'],
    };
    asked.push(one);
    await answer(one, response, asked.length);
  });
  const slept: number[] = [];
  const clock = {
    now: () => slept.reduce((sum, ms) => sum + ms, 0),
    sleep: async (ms: number) => {
      slept.push(ms);
    },
  };
  const completions = new Completions(
    {
      url: `${url}/v1/`,
      model: 'tiny',
      concurrency: 4,
      requestsPerMinute: null,
      tokensPerMinute: null,
      attempts: 3,
      timeoutMs: 30_000,
      sendStopStrings: false,
      continueFinalMessage: false,
      maxTokensKey: 'max_tokens',
      extra: {},
      ...part,
    },
    clock,
  );
  t.teardown(() => completions.close());
  return { completions, asked, slept };
}

const say = (response: ServerResponse, content: string, finish_reason = 'stop') =>
  response.end(
    JSON.stringify({
      choices: [{ message: { role: 'assistant', content }, finish_reason }],
      usage: { prompt_tokens: 10, completion_tokens: 3 },
    }),
  );
const fail = (response: ServerResponse, status: number, headers: { [name: string]: string } = {}) => {
  response.writeHead(status, headers).end('{"error":{"message":"too fast"}}');
};
const wanted = {
  messages: [{ role: 'user', content: 'Which way?' }] as const,
  maxTokens: 40,
  sampling: { temperature: 0.5, topP: 1, topK: 0 },
  seed: 7,
  stopStrings: [],
};

t.test('a completion is requested as the public interface says, and its tokens are counted', async t => {
  const part = { apiKey: 'secret', extra: { top_a: 1 } };
  const { completions, asked } = await endpoint(t, (_, response) => void say(response, 'Up', 'length'), part);
  t.same(await completions.complete(wanted), { text: 'Up', finishReason: 'length' });
  await completions.complete({
    ...wanted,
    sampling: { temperature: 1, topP: 0.9, topK: 5, presencePenalty: 0.5, badWords: ['no'] },
  });
  t.same(asked[0], {
    path: '/v1/chat/completions',
    authorization: 'Bearer secret',
    body: { model: 'tiny', messages: wanted.messages, temperature: 0.5, max_tokens: 40, seed: 7, top_a: 1 },
  });
  t.match(asked[1].body, { top_p: 0.9, top_k: 5, presence_penalty: 0.5, bad_words: ['no'] });
  t.same(completions.usage, { requests: 2, retries: 0, promptTokens: 20, completionTokens: 6 });
});

t.test('retryable errors are retried after Retry-After; others are thrown at once', async t => {
  const { completions, slept } = await endpoint(t, (_, response, count) => {
    if (count === 1) fail(response, 429, { 'retry-after': '7' });
    else if (count === 2) response.destroy();
    else say(response, 'Down');
  });
  t.equal((await completions.complete(wanted)).text, 'Down');
  t.equal(slept[0], 7000);
  t.equal(slept.length, 2);
  t.equal(completions.usage.retries, 2);

  const refusing = await endpoint(t, (_, response) => fail(response, 401));
  await t.rejects(refusing.completions.complete(wanted), /status 401: .*too fast/);
  t.equal(refusing.asked.length, 1);
  const broken = await endpoint(t, (_, response) => fail(response, 503));
  await t.rejects(broken.completions.complete(wanted), /status 503.*, 3 times \(endpoint\.attempts\)/);
  const page = await endpoint(t, (_, response) => void response.end('<html>'));
  await t.rejects(page.completions.complete(wanted), /not a chat completion: <html>/);
  for (const content of [5, ['Up'], { text: 'Up' }]) {
    const odd = await endpoint(t, (_, response) => void say(response, content as never));
    await t.rejects(odd.completions.complete(wanted), { name: 'EndpointError', message: /not a chat comp/ });
  }
});

t.test('numbers of tokens that are none count as 0', async t => {
  const { completions } = await endpoint(t, (_, response) => {
    const usage = { prompt_tokens: '10', completion_tokens: -3 };
    response.end(JSON.stringify({ choices: [{ message: { content: 'Up' } }], usage }));
  });
  await completions.complete(wanted);
  t.match(completions.usage, { promptTokens: 0, completionTokens: 0 });
});

t.test('completions respect the concurrency limit and the provider’s rate limits', async t => {
  let open = 0;
  let most = 0;
  const slow = async (_: ReceivedRequest, response: ServerResponse) => {
    most = Math.max(most, ++open);
    await new Promise(resolve => setImmediate(resolve));
    open--;
    say(response, 'Up');
  };
  const { completions, slept } = await endpoint(t, slow, { concurrency: 2, requestsPerMinute: 5 });
  await Promise.all(Array.from({ length: 9 }, () => completions.complete(wanted)));
  t.ok(most <= 2);
  t.ok(slept.length > 0 && slept.every(ms => ms <= 60_000));
  t.equal(completions.usage.requests, 9);
});

t.test('a text ends with its first stop string, even if the endpoint ignores stop strings', async t => {
  const stopStrings = ['</answer>', 'END'];
  const { completions, asked } = await endpoint(
    t,
    (_, response) => void say(response, 'Up</answer> and END', 'length'),
  );
  t.same(await completions.complete({ ...wanted, stopStrings }), {
    text: 'Up</answer>',
    finishReason: 'stop',
  });
  t.equal(asked[0].body.stop, undefined);
  t.equal((await completions.complete({ ...wanted, stopStrings: ['Down'] })).finishReason, 'length');
});

t.test('stop strings are sent where the endpoint says which of them it has taken out', async t => {
  const choices = [
    { message: { content: 'Up' }, finish_reason: 'stop', stop_reason: '</answer>' },
    { message: { content: 'Up</answer>' }, finish_reason: 'stop', matched_stop: '</answer>' },
    { message: { content: 'Up' }, finish_reason: 'stop', stop_reason: null },
    { message: { content: 'Up' }, finish_reason: 'stop', matched_stop: 151645 },
    { message: { content: 'Up' }, finish_reason: 'length' },
    { message: { content: 'Up' }, finish_reason: 'stop' },
  ];
  const { completions, asked } = await endpoint(
    t,
    (_, response, count) => void response.end(JSON.stringify({ choices: [choices[count - 1]] })),
    { sendStopStrings: true },
  );
  const texts: string[] = [];
  const request = { ...wanted, stopStrings: ['</answer>'] };
  for (let i = 1; i < choices.length; i++) texts.push((await completions.complete(request)).text);
  t.same(texts, ['Up</answer>', 'Up</answer>', 'Up', 'Up', 'Up']);
  t.same(asked[0].body.stop, ['</answer>']);
  await t.rejects(completions.complete(request), /does not say which stop string.*send_stop_strings=false/);
});
