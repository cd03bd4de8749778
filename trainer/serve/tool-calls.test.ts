import t from 'tap';
import { validateConfig } from '../../shared/config.ts';
import { WarmStart } from '../config/sections/training.ts';
import { chatTokenizer } from '../gateway/gateway.test-data.ts';
import { scratchConfig } from '../models/config.ts';
import { LocalPolicy } from '../policy/local-policy.ts';
import { warmStart } from '../training/supervised/warm-start.ts';
import { startServer } from './serve.test-data.ts';

const CONTEXT = 160;
const CALL = '<tool_call>{"name": "step", "arguments": {"action": "left"}}</tool_call>';
const tool = {
  type: 'function' as const,
  function: { name: 'step', parameters: { type: 'object', properties: { action: { type: 'string' } } } },
};
const question = { role: 'user' as const, content: 'Which way?' };
const result = { role: 'tool', tool_call_id: 'a', content: 'You fell.' };
const called = {
  role: 'assistant',
  content: '',
  tool_calls: [{ id: 'a', type: 'function', function: { name: 'step', arguments: { action: 'left' } } }],
};

/** A policy that calls the tool when it is asked, and says `Done.` after the tool's result. */
async function trainedFolder(folder: string): Promise<void> {
  const tokenizer = chatTokenizer([CALL.slice(11, 45), 'left', '"}}', 'Which way?', 'You fell.', 'Done.']);
  const policy = await LocalPolicy.create({
    model: scratchConfig({
      vocabularySize: tokenizer.vocabularySize,
      hiddenSize: 32,
      layers: 2,
      heads: 2,
      keyValueHeads: 2,
      intermediateSize: 64,
      maxPositions: CONTEXT,
      initializerRange: 0.1,
      eosTokenId: tokenizer.eosTokenId,
    }),
    seed: 1,
    valueHead: false,
    workers: 1,
    files: tokenizer.files,
  });
  const demonstration = (messages: object[], answer: string) => {
    const prompt = tokenizer.chatTemplate!.render(messages as never, {
      addGenerationPrompt: true,
      variables: { tools: [tool] as never },
    });
    const [before, said] = [tokenizer.encode(prompt), tokenizer.encode(`${answer}<eos>`)];
    return {
      tokenIds: Int32Array.from([...before, ...said]),
      lossMask: Uint8Array.from([...before.map(() => 0), ...said.map(() => 1)]),
    };
  };
  const settings = validateConfig(
    { epochs: 60, batch_size: 2, learning_rate: 1e-2, warmup_steps: 5, weight_decay: 0 },
    WarmStart,
  );
  const lessons = [demonstration([question], CALL), demonstration([question, called, result], 'Done.')];
  await warmStart(policy, lessons, settings, { seed: 1, signal: new AbortController().signal });
  await policy.save(folder);
  await policy.close();
}

t.test('a policy that learned to call tools does so through the openai package', async t => {
  const folder = t.testdir();
  await trainedFolder(folder);
  const { client } = await startServer(t, folder, { policy: { workers: 1 } });
  const asked = { model: 'base', messages: [question], tools: [tool], temperature: 0, max_tokens: 60 };
  const whole = await client.chat.completions.create(asked);
  const [{ message, finish_reason }] = whole.choices;
  t.equal(finish_reason, 'tool_calls');
  t.equal(message.content, null);
  const [call] = message.tool_calls!;
  t.match(call, { type: 'function', function: { name: 'step', arguments: '{"action":"left"}' } });

  const pieces: string[] = [];
  let reason: string | null = null;
  for await (const { choices } of await client.chat.completions.create({ ...asked, stream: true })) {
    for (const piece of choices[0].delta.tool_calls ?? []) pieces.push(piece.function?.arguments ?? '');
    t.notOk(choices[0].delta.content, 'no text of a call is shown');
    reason = choices[0].finish_reason ?? reason;
  }
  t.equal(pieces.join(''), '{"action":"left"}');
  t.equal(reason, 'tool_calls');

  const answered = await client.chat.completions.create({
    ...asked,
    messages: [question, message, { role: 'tool', tool_call_id: call.id, content: result.content }],
  });
  t.match(answered.choices[0], { finish_reason: 'stop', message: { content: 'Done.' } });
});
