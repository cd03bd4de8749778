import { Tokenizer as HubTokenizer } from '@huggingface/tokenizers';
import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { buildByteTokenizer, buildWordTokenizer, saveTokenizer, withWords } from './builder.ts';
import { loadTokenizer, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, tokenizerFromFiles } from './load.ts';
import type { Tokenizer } from './tokenizer.ts';
import { isByteLevel } from './words-and-bytes.ts';

const WORDS = ['<answer>', '</answer>', '||', 'Higher', 'High', '北 é', '☃', '<|'];
const PIECES = [
  ...WORDS,
  'é',
  '<pad>',
  '<eos>',
  'a',
  ' ',
  '\n',
  '\0',
  'Hig',
  '|',
  'ü',
  '👍',
  '\ufeff',
  '<answer',
];

/** Texts in which words touch, overlap and are parts of others. */
function texts(count: number): string[] {
  const rng = Random.fromSeed(3);
  return Array.from({ length: count }, () =>
    Array.from({ length: rng.integer(12) }, () => rng.choice(PIECES)).join(''),
  );
}

const hubOf = (tokenizer: Tokenizer) =>
  new HubTokenizer(
    JSON.parse(tokenizer.files[TOKENIZER_FILE]),
    JSON.parse(tokenizer.files[TOKENIZER_CONFIG_FILE] ?? '{}'),
  );

t.test('ids are the bytes and the words, and every text comes back', async t => {
  const tokenizer = buildByteTokenizer(WORDS);
  t.same(tokenizer.encode('a北 é☃\nü'), [97, 263, 264, 10, 0xc3, 0xbc]);
  t.equal(tokenizer.vocabularySize, 256 + 2 + WORDS.length);
  t.equal(tokenizer.idOf('Higher'), 261);
  t.equal(tokenizer.idOf('a'), 97, 'a word of one byte is that byte');
  t.equal(tokenizer.idOf('ü'), undefined, 'two bytes');
  const latin = buildByteTokenizer(['é', 'Āé', 'a', 'ab']);
  t.same([latin.vocabularySize, latin.encode('éa')], [259, [0xc3, 0xa9, 97]], 'only ab is one token');
  t.same([tokenizer.padTokenId, tokenizer.eosTokenId], [256, 257]);
  for (const text of texts(300)) t.equal(tokenizer.decode(tokenizer.encode(text)), text);
});

t.test('ids and texts are those of @huggingface/tokenizers', async t => {
  const tokenizer = buildByteTokenizer(WORDS);
  const hub = hubOf(tokenizer);
  for (const text of texts(300)) {
    t.same(tokenizer.encode(text), hub.encode(text, { add_special_tokens: false }).ids, JSON.stringify(text));
  }
  const rng = Random.fromSeed(5);
  for (let i = 0; i < 300; i++) {
    const ids = Array.from({ length: 1 + rng.integer(8) }, () => rng.integer(tokenizer.vocabularySize));
    for (const skipSpecial of [false, true]) {
      const expected = hub.decode(ids, {
        skip_special_tokens: skipSpecial,
        clean_up_tokenization_spaces: false,
      });
      t.equal(tokenizer.decode(ids, { skipSpecial }), expected, ids.join());
    }
  }
});

t.test(
  'bytes that are no UTF-8 become replacement characters, and a token that is none is an error',
  async t => {
    const tokenizer = buildByteTokenizer(WORDS);
    t.equal(tokenizer.decode([0xe2, 0x98, 259, 0x83, 97]), '\ufffd</answer>\ufffda');
    t.equal(tokenizer.decode([0xe2, 0x98, 256, 0x83], { skipSpecial: true }), '☃');
    t.equal(tokenizer.decode(tokenizer.encode('a\ud800b')), 'a\ufffdb', 'half a character is not text');
    t.throws(() => tokenizer.decode([9999]), /token id 9999/);
  },
);

t.test('a saved byte tokenizer loads as the same', async t => {
  const folder = t.testdir();
  const tokenizer = buildByteTokenizer(WORDS);
  await saveTokenizer(tokenizer, folder);
  const loaded = await loadTokenizer(folder);
  t.same([loaded.constructor.name, loaded.files], ['ByteTokenizer', tokenizer.files]);
  for (const text of texts(50)) t.same(loaded.encode(text), tokenizer.encode(text));
});

t.test('other byte-level tokenizers are left to the library', async t => {
  const json = JSON.parse(buildByteTokenizer(WORDS).files[TOKENIZER_FILE]);
  const [first, ...rest] = json.added_tokens;
  t.ok(isByteLevel(json));
  for (const other of [
    { ...json, model: { ...json.model, merges: ['a b'] } },
    { ...json, normalizer: { type: 'NFC' } },
    { ...json, pre_tokenizer: { ...json.pre_tokenizer, add_prefix_space: true } },
    { ...json, added_tokens: [{ ...first, lstrip: true }, ...rest] },
    { ...json, added_tokens: [{ ...first, content: '' }, ...rest] },
    { ...json, model: { ...json.model, vocab: { ...json.model.vocab, a: undefined } } },
    { ...json, model: { ...json.model, vocab: { ...json.model.vocab, ab: 300 } } },
    { ...json, model: { ...json.model, ignore_merges: true } },
    { ...json, added_tokens: [{ ...first, id: 65 }, ...rest] },
    { ...json, decoder: null },
  ]) {
    t.notOk(isByteLevel(JSON.parse(JSON.stringify(other))));
  }
});

t.test('words that a tokenizer lacks become tokens after its own', async t => {
  const folder = new URL('../../../test/golden/models/qwen2-tiny/', import.meta.url).pathname;
  const plain = await loadTokenizer(folder);
  const more = withWords(plain, ['<answer>', 'Higher', '<|im_end|>', 'a'], folder);
  t.equal(more.vocabularySize, plain.vocabularySize + 2, 'two were there');
  t.equal(more.encode('<answer>').length, 1);
  t.equal(more.decode(more.encode('<answer>Higher or lower')), '<answer>Higher or lower');
  t.same(more.encode(' or lower'), plain.encode(' or lower'));
  t.equal(withWords(more, ['Higher'], folder), more);
  const words = buildWordTokenizer(['a', 'b']);
  t.equal(withWords(words, ['a'], 'here'), words);
  t.throws(() => withWords(words, ['a', 'cc'], 'here'), /here: this word-level tokenizer lacks cc/);
  t.throws(() => tokenizerFromFiles({ [TOKENIZER_FILE]: '{' }, 'here'), /not valid JSON/);
});
