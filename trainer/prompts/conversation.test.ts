import { fileURLToPath } from 'node:url';
import t from 'tap';
import { buildWordTokenizer } from '../models/tokenizer/builder.ts';
import { loadTokenizer } from '../models/tokenizer/load.ts';
import { type ExampleMessage, tokenizeConversation } from './conversation.ts';

const folder = (name: string) => fileURLToPath(new URL(`../../test/golden/models/${name}`, import.meta.url));
const conversation: readonly ExampleMessage[] = [
  { role: 'system', content: 'Push the box.' },
  { role: 'user', content: 'State:\n#P_' },
  { role: 'assistant', content: '<think>go</think><answer>Up</answer>' },
  { role: 'user', content: 'State:\n#_P' },
  { role: 'assistant', content: '<think>on</think><answer>Down</answer>' },
];

for (const name of ['qwen2-tiny', 'qwen3-tiny', 'llama-tiny']) {
  t.test(`${name}: the template's text, learned where an assistant speaks`, async t => {
    const tokenizer = await loadTokenizer(folder(name));
    const { tokenIds, lossMask } = tokenizeConversation(conversation, tokenizer);
    const learned = [...tokenIds].filter((_, i) => lossMask[i]);
    const text = tokenizer.decode(tokenIds);
    for (const { content } of conversation) t.match(text, content);
    const said = tokenizer.decode(learned);
    t.match(
      said,
      /^<think>go<\/think><answer>Up<\/answer><[^\n]+><think>on<\/think><answer>Down<\/answer><[^\n]+>$/,
    );
    t.equal(lossMask[0], 0);
    const unprimed = tokenizer.encode(text);
    t.equal(tokenizer.decode(unprimed), text);
  });
}

t.test('the whole conversation reads as the template renders it', async t => {
  const tokenizer = await loadTokenizer(folder('qwen2-tiny'));
  const { tokenIds } = tokenizeConversation(conversation, tokenizer);
  t.equal(
    tokenizer.decode(tokenIds),
    tokenizer.chatTemplate!.render(conversation, { addGenerationPrompt: false }),
  );
  const [, ...rest] = conversation;
  const without = tokenizeConversation(rest, tokenizer);
  t.equal(
    tokenizer.decode(without.tokenIds),
    tokenizer.chatTemplate!.render(rest, { addGenerationPrompt: false }),
  );
});

t.test('a prime is part of the prompt, and messages of weight 0 are not learned', async t => {
  const tokenizer = await loadTokenizer(folder('qwen2-tiny'));
  const said = (messages: readonly ExampleMessage[], prime: string) => {
    const { tokenIds, lossMask } = tokenizeConversation(messages, tokenizer, prime);
    return tokenizer.decode([...tokenIds].filter((_, i) => lossMask[i]));
  };
  t.match(said(conversation, '<think>'), /^go<\/think>/);
  const first = conversation.map((message, i) => (i === 2 ? { ...message, weight: 0 } : message));
  t.match(said(first, ''), /^<think>on/);
});

t.test('without a template messages follow each other directly; unknown words are refused', async t => {
  const tokenizer = buildWordTokenizer(['<answer>', '</answer>', 'Up', '#', 'P', '_']);
  const messages: readonly ExampleMessage[] = [
    { role: 'user', content: '#P_' },
    { role: 'assistant', content: '<answer>Up</answer>' },
  ];
  const { tokenIds, lossMask } = tokenizeConversation(messages, tokenizer, '<answer>');
  t.equal(tokenizer.decode(tokenIds), '#P_<answer>Up</answer>');
  t.same([...lossMask], [0, 0, 0, 0, 1, 1]);
  const masks = (weight: number) => {
    const last = { ...messages[1], weight };
    return [...tokenizeConversation([messages[0], last], tokenizer, '<answer>', 'everything').lossMask];
  };
  t.same(masks(1), [0, 1, 1, 1, 1, 1], 'everything but the first token, which nothing comes before');
  t.same(masks(0), [0, 1, 1, 1, 0, 0], 'and but what has weight 0');
  t.throws(
    () => tokenizeConversation([{ role: 'user', content: '?' }, messages[1]], tokenizer),
    /cannot write "\?"/,
  );
});

t.test('conversations of another shape are refused with what is wrong', async t => {
  const tokenizer = buildWordTokenizer(['a']);
  const refused = (...roles: ExampleMessage['role'][]) => {
    try {
      tokenizeConversation(
        roles.map(role => ({ role, content: 'a' })),
        tokenizer,
      );
    } catch (error) {
      return (error as Error).message;
    }
    return '';
  };
  t.match(refused('user'), /got user/);
  t.match(refused(), /got none/);
  t.match(refused('assistant', 'user'), /message 0 is by assistant/);
  t.match(refused('user', 'assistant', 'system', 'assistant'), /message 2 is by system/);
});
