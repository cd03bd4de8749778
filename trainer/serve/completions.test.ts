import t from 'tap';
import { LocalPolicy } from '../policy/local-policy.ts';
import { GOLDEN, goldenFolder, startServer } from './serve.test-data.ts';

const PROMPT = [5, 9, 17, 23, 4, 31, 8, 12, 40, 3, 7, 19, 22, 2, 11, 30, 6, 14];
const TOKENS = 64;

/** Tokens that a policy in this process samples. */
async function sampledHere(folder: string, temperature: number, seed: number) {
  const policy = await LocalPolicy.create({
    model: folder,
    seed: 0,
    workers: 1,
    valueHead: false,
    generationOnly: true,
  });
  try {
    const sampling = { temperature, topK: 0, topP: 1, maxNewTokens: TOKENS, stopTokenIds: [] };
    return await policy.generate({ sequenceId: 1, append: PROMPT, sampling, seed });
  } finally {
    await policy.close();
  }
}

for (const name of GOLDEN) {
  t.test(`${name}: tokens of the server are those of a local policy, streamed and not`, async t => {
    const { client, models } = await startServer(t, goldenFolder(name));
    const { tokenizer } = models.base;
    for (const { temperature, seed } of [
      { temperature: 0, seed: 1 },
      { temperature: 0.9, seed: 7 },
    ]) {
      const expected = await sampledHere(goldenFolder(name), temperature, seed);
      t.equal(expected.tokenIds.length, TOKENS);
      const request = {
        model: 'base',
        prompt: PROMPT,
        temperature,
        seed,
        max_tokens: TOKENS,
        ignore_eos: true,
        return_token_ids: true,
        logprobs: 0,
      };
      const whole = await client.completions.create(request);
      const [choice] = whole.choices as ((typeof whole.choices)[0] & {
        token_ids: number[];
        prompt_token_ids: number[];
      })[];
      t.same(choice.token_ids, [...expected.tokenIds]);
      t.same(choice.prompt_token_ids, PROMPT);
      t.equal(choice.text, tokenizer.decode(expected.tokenIds, { skipSpecial: true }));
      t.equal(choice.finish_reason, 'length');
      if (temperature > 0) t.same(Float32Array.from(choice.logprobs!.token_logprobs!), expected.logProbs);
      t.same(whole.usage, {
        prompt_tokens: PROMPT.length,
        completion_tokens: TOKENS,
        total_tokens: PROMPT.length + TOKENS,
      });

      const ids: number[] = [];
      let text = '';
      let reason: string | null = null;
      let usage: unknown;
      const stream = await client.completions.create({
        ...request,
        stream: true,
        stream_options: { include_usage: true },
      });
      for await (const chunk of stream) {
        const [piece] = chunk.choices as ((typeof chunk.choices)[0] & { token_ids: number[] })[];
        if (chunk.usage) usage = chunk.usage;
        if (piece === undefined) continue;
        ids.push(...piece.token_ids);
        text += piece.text;
        reason = piece.finish_reason ?? reason;
      }
      t.same(ids, [...expected.tokenIds]);
      t.equal(text, choice.text);
      t.equal(reason, 'length');
      t.same(usage, whole.usage);
    }
  });
}

t.test('a server', async t => {
  const { client, request, models } = await startServer(t, goldenFolder('qwen2-tiny'));
  const chat = {
    model: 'base',
    messages: [{ role: 'user' as const, content: 'Which way?' }],
    max_tokens: 12,
    seed: 3,
  };

  await t.test('chats, streamed and not', async t => {
    const whole = await client.chat.completions.create(chat);
    t.equal(whole.object, 'chat.completion');
    t.equal(whole.choices[0].message.role, 'assistant');
    t.ok(['stop', 'length'].includes(whole.choices[0].finish_reason));
    let text = '';
    for await (const chunk of await client.chat.completions.create({ ...chat, stream: true })) {
      t.equal(chunk.object, 'chat.completion.chunk');
      text += chunk.choices[0]?.delta.content ?? '';
    }
    t.equal(text, whole.choices[0].message.content);
  });

  await t.test('gives several choices, the first of which is that of a request for one', async t => {
    const one = await client.chat.completions.create(chat);
    const three = await client.chat.completions.create({ ...chat, n: 3 });
    t.same(
      three.choices.map(({ index }) => index),
      [0, 1, 2],
    );
    t.equal(three.choices[0].message.content, one.choices[0].message.content);
    t.equal(new Set(three.choices.map(({ message }) => message.content)).size, 3);
    t.equal(three.usage!.prompt_tokens, one.usage!.prompt_tokens);
  });

  await t.test('gives log-probabilities with the most probable tokens', async t => {
    const { choices } = await client.chat.completions.create({ ...chat, logprobs: true, top_logprobs: 3 });
    const content = choices[0].logprobs!.content!;
    t.equal(content.length, (await client.chat.completions.create(chat)).usage!.completion_tokens);
    for (const { logprob, top_logprobs, token, bytes } of content) {
      t.ok(logprob <= 0);
      t.equal(top_logprobs.length, 3);
      t.same(bytes, [...Buffer.from(token)]);
    }
  });

  await t.test('ends at stop strings and says which', async t => {
    const prompt = [5, 9, 17];
    const free = await client.completions.create({ model: 'base', prompt, max_tokens: 40, seed: 2 });
    const stop = free.choices[0].text.slice(5, 8);
    const cut = await client.completions.create({ model: 'base', prompt, max_tokens: 40, seed: 2, stop });
    t.equal(cut.choices[0].text, free.choices[0].text.slice(0, free.choices[0].text.indexOf(stop)));
    t.equal(cut.choices[0].finish_reason, 'stop');
    t.equal((cut.choices[0] as unknown as { stop_reason: string }).stop_reason, stop);
    let text = '';
    for await (const { choices } of await client.completions.create({
      model: 'base',
      prompt,
      max_tokens: 40,
      seed: 2,
      stop,
      stream: true,
    })) {
      text += choices[0].text;
    }
    t.equal(text, cut.choices[0].text);
  });

  await t.test('samples with penalties, bias and bad words as a local policy does', async t => {
    const prompt = [5, 9, 17];
    const asked = { prompt, max_tokens: 24, seed: 4, ignore_eos: true, return_token_ids: true, logprobs: 0 };
    const tokensOf = async (more: object) => {
      const { body } = await request('POST', '/v1/completions', { ...asked, ...more });
      return body.choices[0];
    };
    const free = await tokensOf({});
    const local = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 24, stopTokenIds: [] };
    const cases: [object, object][] = [
      [{ min_p: 0.3 }, { minP: 0.3 }],
      [{ repetition_penalty: 3 }, { repetitionPenalty: 3 }],
      [
        { presence_penalty: 1.5, frequency_penalty: 1 },
        { presencePenalty: 1.5, frequencyPenalty: 1 },
      ],
      [{ logit_bias: { 30: 5, 31: -100 } }, { logitBias: { 30: 5, 31: -100 } }],
      [{ bad_words: [free.text.slice(0, 1)] }, { badWords: [free.text.slice(0, 1)] }],
    ];
    for (const [i, [fields, settings]] of cases.entries()) {
      const { token_ids, logprobs, text } = await tokensOf(fields);
      const { tokenIds, logProbs } = await models.base.policy.generate({
        sequenceId: 10_000 + i,
        append: prompt,
        sampling: { ...local, ...settings },
        seed: 4,
      });
      t.same(token_ids, [...tokenIds], JSON.stringify(fields));
      t.same(Float32Array.from(logprobs.token_logprobs), logProbs);
      t.not(text, free.text, 'the field has an effect');
    }
    const forced = await tokensOf({ temperature: 0, logit_bias: { 30: 100 } });
    t.same([...new Set(forced.token_ids)], [30]);
    const none = await request('POST', '/v1/completions', {
      ...asked,
      token_grammar: { start: 0, states: [{ tokens: [30], next: [0] }] },
      bad_words: [models.base.tokenizer.decode([30])],
    });
    t.equal(none.status, 400);
    t.match(none.body.error.message, /bad words and biases of the request together allow none/);
    const unknown = await request('POST', '/v1/completions', { ...asked, logit_bias: { 99999: 1 } });
    t.equal(unknown.status, 400);
    t.match(unknown.body.error, { param: 'logit_bias', message: /token id 99999 is outside the vocabulary/ });
  });

  await t.test('takes any integer as a seed, as OpenAI does', async t => {
    const asked = { model: 'base', prompt: [3, 4, 5], max_tokens: 8, n: 2, ignore_eos: true };
    const most = Number.MAX_SAFE_INTEGER;
    const texts: string[] = [];
    for (const seed of [-1, -2, -most, most, most - 1]) {
      const { choices } = await client.completions.create({ ...asked, seed });
      const again = await client.completions.create({ ...asked, seed });
      t.same(again.choices, choices, `${seed} twice`);
      texts.push(choices[0].text);
    }
    t.equal(new Set(texts.slice(0, 2)).size, 2, 'seeds differ');
  });

  await t.test('takes lists of prompts, as text and as ids', async t => {
    const asked = { model: 'base', max_tokens: 4, seed: 1 };
    const texts = await client.completions.create({ ...asked, prompt: ['one', 'two'] });
    t.equal(texts.choices.length, 2);
    const ids = ['one', 'two'].map(text => models.base.tokenizer.encode(text));
    const byIds = await client.completions.create({ ...asked, prompt: ids });
    t.same(
      byIds.choices.map(({ text }) => text),
      texts.choices.map(({ text }) => text),
    );
  });

  await t.test('echoes prompts and scores them', async t => {
    const prompt = [5, 9, 17, 23];
    const { choices } = await client.completions.create({
      model: 'base',
      prompt,
      echo: true,
      logprobs: 1,
      max_tokens: 0,
    });
    const { logprobs, text } = choices[0];
    t.equal(text, models.base.tokenizer.decode(prompt, { skipSpecial: true }));
    t.equal(logprobs!.token_logprobs![0], null);
    const scores = await models.base.score(prompt);
    t.same(Float32Array.from(logprobs!.token_logprobs!.slice(1)), scores.slice(1));
    const more = await client.completions.create({ model: 'base', prompt, echo: true, max_tokens: 3 });
    t.ok(more.choices[0].text.startsWith(text));
  });

  await t.test('tokenizes and detokenizes', async t => {
    const { body } = await request('POST', '/tokenize', { prompt: 'Which way?', return_token_strs: true });
    t.same(body.tokens, models.base.tokenizer.encode('Which way?'));
    t.equal(body.count, body.tokens.length);
    t.equal(body.token_strs.join(''), 'Which way?');
    const back = await request('POST', '/detokenize', { tokens: body.tokens });
    t.same(back.body, { prompt: 'Which way?' });
    const whole = await request('POST', '/tokenize', { messages: chat.messages });
    t.ok(whole.body.count > body.count);
  });

  await t.test('continues the last message on request', async t => {
    const open = {
      messages: [...chat.messages, { role: 'assistant', content: '<think>' }],
      continue_final_message: true,
    };
    const { body } = await request('POST', '/tokenize', open);
    const prompt = await request('POST', '/tokenize', { messages: chat.messages });
    const { tokenizer } = models.base;
    t.equal(tokenizer.decode(body.tokens), `${tokenizer.decode(prompt.body.tokens)}<think>`);
  });

  await t.test('continues from the cache of an earlier turn with the same tokens', async t => {
    const asked = { model: 'base', temperature: 0, max_tokens: 8, ignore_eos: true, return_token_ids: true };
    const first = await request('POST', '/v1/completions', { ...asked, prompt: [3, 4, 5] });
    const prompt = [3, 4, 5, ...first.body.choices[0].token_ids, 9, 9];
    const second = await request('POST', '/v1/completions', { ...asked, prompt });
    const again = await request('POST', '/v1/completions', { ...asked, prompt });
    t.same(second.body.choices[0].token_ids, again.body.choices[0].token_ids);
  });

  await t.test('constrains responses to a JSON schema', async t => {
    const schema = {
      type: 'object',
      properties: { go: { enum: ['Up', 'Down'] }, n: { type: 'integer' }, sure: { type: 'boolean' } },
      required: ['go', 'sure'],
    };
    for (let seed = 0; seed < 4; seed++) {
      const { choices } = await client.chat.completions.create({
        ...chat,
        seed,
        max_tokens: 100,
        response_format: { type: 'json_schema', json_schema: { name: 'move', schema } },
      });
      const { go, sure, n = 0 } = JSON.parse(choices[0].message.content!);
      t.ok(['Up', 'Down'].includes(go) && typeof sure === 'boolean' && Number.isInteger(n));
    }
  });

  await t.test('lists its models', async t => {
    const { data } = await client.models.list();
    t.equal(data[0].id, 'base');
    t.equal((await client.models.retrieve('base')).object, 'model');
  });

  await t.test('reports health, version and metrics', async t => {
    t.equal((await request('GET', '/health')).body.status, 'ok');
    t.type((await request('GET', '/version')).body.version, 'string');
    t.match(
      (await request('GET', '/metrics')).body,
      /ragen_serve_completion_tokens_total\{model="base"\} [1-9]/,
    );
  });
});
