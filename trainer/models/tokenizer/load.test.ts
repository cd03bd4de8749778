import { readdirSync, readFileSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { lacksPython, PYTHON_MS, runPython } from '../../../test/python.test-data.ts';
import { scratchConfig } from '../config.ts';
import { configToJson } from '../config-json.ts';
import { buildByteTokenizer, buildWordTokenizer, saveTokenizer } from './builder.ts';
import {
  endTokenIds,
  loadTokenizer,
  TOKENIZER_CONFIG_FILE,
  TOKENIZER_FILE,
  tokenizerFromFiles,
} from './load.ts';
import { type ChatMessage, ChatTemplate } from './tokenizer.ts';

const MODELS = fileURLToPath(new URL('../../../test/golden/models', import.meta.url));

interface Expected {
  tokenizer: { text: string; ids: number[]; decoded: string }[];
  chat: { messages: ChatMessage[]; add_generation_prompt: boolean; text: string }[];
}

for (const name of ['qwen2-tiny', 'qwen3-tiny', 'llama-tiny']) {
  t.test(`${name}: token ids, texts and chats equal those of transformers`, async t => {
    const folder = join(MODELS, name);
    const expected = JSON.parse(readFileSync(join(folder, 'expected.json'), 'utf8')) as Expected;
    const tokenizer = await loadTokenizer(folder);
    t.equal(tokenizer.vocabularySize, 512);
    t.equal(tokenizer.eosTokenId, tokenizer.idOf('<|im_end|>'));
    for (const row of expected.tokenizer) {
      t.same(tokenizer.encode(row.text), row.ids, row.text);
      t.equal(tokenizer.decode(row.ids), row.decoded);
    }
    for (const row of expected.chat) {
      t.equal(
        tokenizer.chatTemplate?.render(row.messages, { addGenerationPrompt: row.add_generation_prompt }),
        row.text,
      );
    }
  });
}

t.test('a chat template is found inside tokenizer_config.json as well', async t => {
  const model = await readFile(join(MODELS, 'qwen2-tiny', TOKENIZER_FILE), 'utf8');
  const template = `{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}`;
  const load = (chat_template: unknown) =>
    tokenizerFromFiles(
      {
        [TOKENIZER_FILE]: model,
        [TOKENIZER_CONFIG_FILE]: JSON.stringify({ bos_token: { content: '<|endoftext|>' }, chat_template }),
      },
      'test',
    );
  const messages: ChatMessage[] = [{ role: 'user', content: 'hi' }];
  const wanted = '<|endoftext|>[user]hi>';
  t.equal(load(template).chatTemplate?.render(messages, { addGenerationPrompt: true }), wanted);
  const named = [
    { name: 'tool_use', template: 'no' },
    { name: 'default', template },
  ];
  t.equal(load(named).chatTemplate?.render(messages, { addGenerationPrompt: true }), wanted);
  t.equal(load(undefined).chatTemplate, undefined);
});

t.test('tokenizers that would encode to other ids than in Python are rejected by name', async t => {
  const model = JSON.parse(await readFile(join(MODELS, 'qwen2-tiny', TOKENIZER_FILE), 'utf8'));
  const load = (json: object) => () => tokenizerFromFiles({ [TOKENIZER_FILE]: JSON.stringify(json) }, 'here');
  t.throws(load({ ...model, model: { ...model.model, type: 'Unigram', byte_fallback: true } }), {
    message: /^here\/tokenizer\.json: a Unigram model with byte_fallback is not supported/,
  });
  const [first, ...rest] = model.added_tokens;
  t.throws(load({ ...model, added_tokens: [{ ...first, single_word: true }, ...rest] }), {
    message: /the added token ".*" is single_word, which is not supported/,
  });
});

t.test('digits of every script are cut off as in Python', async t => {
  const model = JSON.parse(await readFile(join(MODELS, 'qwen2-tiny', TOKENIZER_FILE), 'utf8'));
  // Merges that pre-tokenizers with digits of ASCII alone would let happen.
  Object.assign(model.model.vocab, { ĠÂ: 512, 'Ù£': 513, 'Ù£Ù': 514 });
  model.model.merges.push(['Ġ', 'Â'], ['Ù', '£'], ['Ù£', 'Ù']);
  const load = (individual_digits: boolean) =>
    tokenizerFromFiles(
      {
        [TOKENIZER_FILE]: JSON.stringify({
          ...model,
          normalizer: null,
          pre_tokenizer: {
            type: 'Sequence',
            pretokenizers: [
              { type: 'Digits', individual_digits },
              { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
            ],
          },
        }),
      },
      'test',
    );
  // By `tokenizers` 0.23.
  const before = [64, 16, 17, 266, 158, 239, 254, 220, 126, 110, 220, 126, 121, 220, 158, 227, 100, 220];
  t.same(load(true).encode('a12 b① ² ½ Ⅷ ٣٤'), [...before, 513, 149, 97]);
  t.same(load(false).encode('a12 b① ² ½ Ⅷ ٣٤'), [...before, 514, 97]);
});

t.test('generation_config.json is kept, and each of its end tokens ends a response', async t => {
  const tokenizer = await loadTokenizer(join(MODELS, 'qwen2-tiny'));
  t.ok(tokenizer.files['generation_config.json']);
  const ends = (text: string) => endTokenIds({ files: { 'generation_config.json': text } });
  t.same(ends('{"eos_token_id": [3, 4]}'), [3, 4]);
  t.same([ends('{"eos_token_id": 5}'), ends('{"eos_token_id": null}'), ends('{}')], [[5], [], []]);
  t.same(endTokenIds({ files: {} }), []);
  t.throws(() => ends('{'), /generation_config\.json is not valid JSON/);
  t.same(endTokenIds(buildWordTokenizer(['Up'])), [2]);
});

t.test('special tokens are left out on request', async t => {
  const tokenizer = await loadTokenizer(join(MODELS, 'qwen2-tiny'));
  const ids = tokenizer.encode('<|im_start|>user\nhi<|im_end|>\n');
  t.equal(tokenizer.decode(ids, { skipSpecial: true }), 'user\nhi\n');
});

t.test('a broken file is named', async t => {
  t.throws(
    () => tokenizerFromFiles({ [TOKENIZER_FILE]: '{' }, 'folder'),
    /folder\/tokenizer.json is not valid JSON/,
  );
  await t.rejects(loadTokenizer(t.testdir()), /tokenizer\.json/);
});

t.test('a tokenizer.json of wrong types is named', async t => {
  const bpe = (model: object) => ({
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel' },
    post_processor: null,
    decoder: { type: 'ByteLevel' },
    model: { type: 'BPE', vocab: { a: 0 }, merges: [], ...model },
  });
  for (const [value, message] of [
    [null, /x\/tokenizer\.json must hold a JSON object/],
    [[], /x\/tokenizer\.json must hold a JSON object/],
    [{}, /x\/tokenizer\.json cannot be used: /],
    [bpe({ merges: [null] }), /x\/tokenizer\.json cannot be used: /],
    [bpe({ vocab: null }), /x\/tokenizer\.json cannot be used: /],
  ] as const)
    t.throws(() => tokenizerFromFiles({ [TOKENIZER_FILE]: JSON.stringify(value) }, 'x'), message);
  const template = (chat_template: unknown) => () =>
    tokenizerFromFiles(
      {
        [TOKENIZER_FILE]: JSON.stringify(bpe({ merges: [] })),
        [TOKENIZER_CONFIG_FILE]: JSON.stringify({ chat_template }),
      },
      'x',
    );
  t.throws(template('{{'.concat('('.repeat(100_000))), /the chat template of x cannot be used: /);
  t.equal(template([null, 3])().chatTemplate, undefined);
});

t.test('a word-level tokenizer gives text back exactly', async t => {
  const tokenizer = buildWordTokenizer([
    '#',
    '_',
    'P',
    'U',
    'Up',
    '√',
    '||',
    '\n',
    '<answer>',
    '(',
    '^',
    'Up',
  ]);
  const text = '#_P√\n<answer>Up||U(^\n';
  const ids = tokenizer.encode(text);
  t.equal(ids.length, 12);
  t.equal(tokenizer.decode(ids), text);
  t.equal(tokenizer.vocabularySize, 14, 'three special tokens and each word once');
  t.equal(tokenizer.decode(tokenizer.encode('#? !_')), '#<unk>_', 'one unknown token for each unknown piece');
  t.same(tokenizer.encode('<eos>'), [tokenizer.eosTokenId]);
  t.equal(tokenizer.decode(tokenizer.encode('#<eos>'), { skipSpecial: true }), '#');
  t.throws(() => tokenizer.decode([14]), /14 is not in the vocabulary of 14/);
});

t.test('a saved word-level tokenizer loads identically', async t => {
  const tokenizer = buildWordTokenizer(['a', 'ab', '<think>', '10']);
  const folder = join(t.testdir(), 'new');
  await saveTokenizer(tokenizer, folder);
  const loaded = await loadTokenizer(folder);
  t.same(loaded.encode('aba10<think>'), tokenizer.encode('aba10<think>'));
  t.equal(loaded.padTokenId, tokenizer.padTokenId);
  t.same(loaded.files, tokenizer.files);
});

t.test('invalid words are rejected', async t => {
  t.throws(() => buildWordTokenizer(['']), /empty/);
  t.throws(() => buildWordTokenizer(['<pad>']), /special token/);
});

/** Tokenizers of transformers' classes, made by test/golden/make-tokenizers.py. */
const TOKENIZERS = fileURLToPath(new URL('../../../test/golden/models/tokenizers', import.meta.url));

interface FamiliesExpected {
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
    const expected = JSON.parse(readFileSync(join(folder, 'expected.json'), 'utf8')) as FamiliesExpected;
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

for (const [kind, build] of [
  ['words', buildWordTokenizer],
  ['bytes', buildByteTokenizer],
] as const) {
  t.test(
    `AutoTokenizer of transformers encodes with the ${kind} of a model from scratch`,
    { skip: lacksPython('transformers'), timeout: PYTHON_MS },
    async t => {
      const folder = join(t.testdir(), 'scratch');
      await mkdir(folder);
      const tokenizer = build(['<answer>', '</answer>', 'Up', 'Down', ' ', '||', '#', '☃', '北 é', 'é']);
      await saveTokenizer(tokenizer, folder);
      const config = scratchConfig({ vocabularySize: tokenizer.vocabularySize, hiddenSize: 16, heads: 2 });
      await writeFile(join(folder, 'config.json'), JSON.stringify(configToJson(config)));
      const texts = [
        '<answer>Up || Down</answer>',
        '###',
        'Up?Down',
        '|||',
        'é☃ \n\t 👍',
        '<eos>Upper<answer',
      ];
      await writeFile(join(folder, 'input.json'), JSON.stringify({ texts }));
      const program = new URL('../../../bench/families/reference.py', import.meta.url);
      const expected = texts.map(text => tokenizer.encode(text));
      t.same(await runPython(program, 'encode', folder), [expected]);
    },
  );
}

t.test('strip, lstrip and rstrip of a chat template remove the same as in Python', async t => {
  const render = (source: string, content: string) =>
    new ChatTemplate(source, {}).render([{ role: 'user', content }], { addGenerationPrompt: false });
  const history = "{{ messages[0].content.split('</think>')[-1].lstrip('\\n') }}";
  t.equal(render(history, '<think>why</think>\n\n  indented\n'), '  indented\n', 'as Qwen3 shows history');
  const both = "{{ '<' + messages[0].content.rstrip('\\n').split('<think>')[0].strip('xy') + '>' }}";
  t.equal(render(both, 'xyz yx\n\n'), '<z >');
  t.equal(render('<{{ messages[0].content.strip() }}>', ' \ufeff\x1f é \n'), '<\ufeff\x1f é>');
  t.throws(() => render('{{ (1).strip() }}', ''), /calls strip on what is not text/);
});
