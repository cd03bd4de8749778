import t from 'tap';
import { ApiError } from './errors.ts';
import { bodyParser, ChatRequestSchema, CompletionRequestSchema, fieldsWithoutEffect } from './schemas.ts';

const chat = bodyParser(ChatRequestSchema);
const completion = bodyParser(CompletionRequestSchema);
const messages = [{ role: 'user', content: 'hi' }];

function refusal(parse: (body: unknown) => unknown, body: unknown): ApiError {
  try {
    parse(body);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('was accepted');
}

t.test('requests of every kind are taken', async t => {
  const everything = {
    model: 'm',
    messages: [
      { role: 'developer', content: [{ type: 'text', text: 'be brief' }] },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }],
      },
      { role: 'tool', content: 'done', tool_call_id: 'a' },
    ],
    tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }],
    tool_choice: 'auto',
    stream: true,
    stream_options: { include_usage: true },
    stop: ['a', 'b'],
    top_k: -1,
    seed: 7,
    frequency_penalty: 0,
    user: 'me',
    metadata: null,
  };
  t.same(chat(everything), everything);
  t.same(fieldsWithoutEffect(everything), ['user']);
  for (const prompt of ['text', [1, 2], ['a', 'b'], [[1], [2, 3]]]) t.ok(completion({ prompt }));
});

t.test('a wrong request is refused with the field that is wrong', async t => {
  const cases: [unknown, string | null, RegExp][] = [
    [{}, 'messages', /"messages" is required/],
    [{ messages: [] }, 'messages', /messages/],
    [
      { messages, max_tokns: 1 },
      'max_tokns',
      /unknown key "max_tokns" \(did you mean "?max_tokens"?\?\)|unknown key "max_tokns"/,
    ],
    [{ messages, temperature: 'hot' }, 'temperature', /temperature must be number/],
    [{ messages, temperature: -1 }, 'temperature', /temperature/],
    [{ messages, n: 0 }, 'n', /n must/],
    [{ messages: [{ role: 'robot', content: '' }] }, 'messages', /messages\/0\/role/],
    [
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: {} }] }] },
      'messages',
      /messages\/0\/content/,
    ],
    [{ messages, frequency_penalty: 2.5 }, 'frequency_penalty', /must be <= 2/],
    [{ messages, repetition_penalty: 0 }, 'repetition_penalty', /must be > 0/],
    [{ messages, min_p: 1.1 }, 'min_p', /must be <= 1/],
    [{ messages, logit_bias: { 5: 101 } }, 'logit_bias', /logit_bias/],
    [{ messages, logit_bias: { hello: 1 } }, 'logit_bias', /logit_bias/],
    [{ messages, bad_words: [''] }, 'bad_words', /bad_words/],
    [[], null, /JSON object/],
    ['text', null, /JSON object/],
  ];
  for (const [body, param, message] of cases) {
    const error = refusal(chat, body);
    t.equal(error.status, 400);
    t.equal(error.type, 'invalid_request_error');
    t.equal(error.param, param, JSON.stringify(body));
    t.match(error.message, message);
  }
  t.equal(refusal(completion, { prompt: [] }).param, 'prompt');
  t.equal(refusal(completion, { prompt: [1, 'a'] }).param, 'prompt');
});

t.test('a body nested too deep is refused', async t => {
  let deep: unknown = 1;
  for (let i = 0; i < 5000; i++) deep = [deep];
  t.match(refusal(chat, { messages, metadata: { deep } }).message, /nested more than 64/);
});

t.test('objects of too many entries are refused, wherever they are', async t => {
  const entries = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, i]));
  const excess = /the objects of the body have more than 50000 entries together/;
  t.match(refusal(chat, { messages, ...entries(50_001) }).message, excess);
  const half = [entries(25_001), entries(25_001)];
  t.match(refusal(chat, { messages, chat_template_kwargs: { half } }).message, excess);
  const [one] = half;
  t.doesNotThrow(() => chat({ messages, model: 'm', chat_template_kwargs: { one } }));
});

t.test('faults are looked for among the first entries of long lists and objects', async t => {
  const ids = Array.from({ length: 6000 }, () => 3);
  const behind = /an invalid entry after the first 5000/;
  t.match(refusal(completion, { prompt: [...ids, 'x'] }).message, behind);
  t.match(refusal(completion, { prompt: [[...ids, 'x']] }).message, behind);
  t.match(refusal(completion, { prompt: [[3, 'x'], ids] }).message, /^prompt /);
  const bias = Object.fromEntries(ids.map((_, i) => [i, 1]));
  t.match(refusal(completion, { prompt: [3], logit_bias: bias }).message, /4096 properties/);
  t.match(refusal(completion, { prompt: [3], stop: ids.map(String) }).message, /^stop .*a list of 6000$/);
});

t.test('lists that take long to render have a limit', async t => {
  const many = (length: number, item: unknown) => Array.from({ length }, () => item);
  t.match(refusal(chat, { messages: many(4097, messages[0]) }).message, /^messages .*4096/);
  const tool = { type: 'function', function: { name: 'f' } };
  t.equal(refusal(chat, { messages, tools: many(513, tool) }).body.error.param, 'tools');
  const variables = Object.fromEntries(many(65, 0).map((_, i) => [`k${i}`, 1]));
  t.equal(
    refusal(chat, { messages, chat_template_kwargs: variables }).body.error.param,
    'chat_template_kwargs',
  );
  t.equal(refusal(chat, { messages, metadata: variables }).body.error.param, 'metadata');
});
