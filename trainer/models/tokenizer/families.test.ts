import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import type { ChatMessage } from './chat-template.ts';
import { loadTokenizer } from './load.ts';

/** Tokenizers of transformers' classes, made by test/golden/make-tokenizers.py. */
const TOKENIZERS = fileURLToPath(new URL('../../../test/golden/models/tokenizers/', import.meta.url));

interface Expected {
  readonly tokenizer: readonly { readonly text: string; readonly ids: number[]; readonly decoded: string }[];
  /** `text` is null where the template raises an exception. */
  readonly chat: readonly {
    readonly messages: ChatMessage[];
    readonly add_generation_prompt: boolean;
    readonly text: string | null;
  }[];
}

for (const name of readdirSync(TOKENIZERS)) {
  t.test(`the tokenizer of ${name} gives the ids, texts and chats of transformers`, async t => {
    const folder = join(TOKENIZERS, name);
    const expected = JSON.parse(readFileSync(join(folder, 'expected.json'), 'utf8')) as Expected;
    const tokenizer = await loadTokenizer(folder);
    t.ok(expected.tokenizer.length > 70);
    for (const { text, ids, decoded } of expected.tokenizer) {
      t.same(tokenizer.encode(text), ids, `ids of ${JSON.stringify(text)}`);
      t.equal(tokenizer.decode(ids), decoded, `text of ${ids}`);
    }
    for (const { messages, add_generation_prompt, text } of expected.chat) {
      const render = () =>
        tokenizer.chatTemplate!.render(messages, { addGenerationPrompt: add_generation_prompt });
      if (text === null) t.throws(render, /roles? (must|not supported)/);
      else t.equal(render(), text);
    }
  });
}
