import { Tokenizer as HubTokenizer } from '@huggingface/tokenizers';
import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { buildByteTokenizer, learnMerges, saveTokenizer, withWords } from './builder.ts';
import { loadTokenizer, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE } from './load.ts';

const WORDS = ['<answer>', '</answer>', '||', 'north', 'go west'];
const LINES = [
  '#####..#####..##### P ..G',
  'the lamp is lit; go west, then north',
  'id=2048 value=-4.125e-7 42',
  '漢字の迷路、漢字の迷路',
  'caf\u00e9 \u{1f600}\u{1f600} \u{1f468}\u200d\u{1f469}\u200d\u{1f467} e\u0301',
  '\0\x01\x7f\ufeff\u2028\t\r\n   end',
  'constructor __proto__ toString <|im_end|> Ġ Ċ',
];

/** Texts of lines, parts of lines and words, which touch. */
function texts(count: number, seed = 7): string[] {
  const rng = Random.fromSeed(seed);
  const pieces = [...LINES, ...LINES.flatMap(line => [...line]), ...WORDS, '<pad>', '\n', ' '];
  return Array.from({ length: count }, () =>
    Array.from({ length: rng.integer(12) }, () => rng.choice(pieces)).join(''),
  );
}

const learned = (of: readonly string[]) => buildByteTokenizer(WORDS, learnMerges(of, WORDS));

t.test('the most frequent pairs become tokens, and of equal ones those with the lower bytes', async t => {
  t.same(learnMerges(['abab cdcd', 'abab xy'], []), [
    ['a', 'b'],
    ['c', 'd'],
    ['ab', 'ab'],
  ]);
});

t.test('the same texts give the same merges in any order of equal counts', async t => {
  const given = texts(300);
  const merges = learnMerges(given, WORDS);
  t.ok(merges.length > 100 && merges.length <= 512, `${merges.length} merges`);
  t.same(learnMerges(given, WORDS), merges);
  t.same(learnMerges(given.toReversed(), WORDS), merges);
  const made = merges.map(pair => pair.join(''));
  t.equal(new Set(made).size, made.length, 'each makes another token');
});

t.test('every text comes back, in fewer tokens than bytes, and as the library reads it', async t => {
  const tokenizer = learned(texts(300));
  const hub = new HubTokenizer(
    JSON.parse(tokenizer.files[TOKENIZER_FILE]),
    JSON.parse(tokenizer.files[TOKENIZER_CONFIG_FILE]),
  );
  const bytes = buildByteTokenizer(WORDS);
  let [fewer, all] = [0, 0];
  for (const text of ['', ...LINES, ...texts(500, 11)]) {
    const ids = tokenizer.encode(text);
    t.equal(tokenizer.decode(ids), text, encodeURIComponent(text));
    t.same(hub.encode(text, { add_special_tokens: false }).ids, ids);
    t.ok(ids.every(id => id < tokenizer.vocabularySize));
    fewer += ids.length;
    all += bytes.encode(text).length;
  }
  t.ok(fewer < 0.6 * all, `${fewer} of ${all}`);
  const rng = Random.fromSeed(5);
  for (let i = 0; i < 300; i++) {
    const text = Array.from({ length: 20 }, () => String.fromCodePoint(rng.integer(0xd800))).join('');
    t.equal(tokenizer.decode(tokenizer.encode(text)), text, 'characters that it has never seen');
  }
});

t.test('words stay one token wherever they stand, and each digit is one', async t => {
  const tokenizer = learned(texts(300));
  for (const word of WORDS) {
    const [id, ...more] = tokenizer.encode(word);
    t.same(more, []);
    t.equal(tokenizer.idOf(word), id);
    t.ok(tokenizer.encode(`#.${word}.#`).includes(id), word);
  }
  t.same(tokenizer.encode('2048'), [50, 48, 52, 56]);
  t.equal(withWords(tokenizer, WORDS, 'here'), tokenizer, 'nothing is missing when a run loads it');
});

t.test('ids are distinct and have no gaps, also where a word is among the merges', async t => {
  const tokenizer = buildByteTokenizer(
    ['ab', 'cd'],
    [
      ['a', 'b'],
      ['b', 'c'],
    ],
  );
  const json = JSON.parse(tokenizer.files[TOKENIZER_FILE]);
  const ids = new Map<string, number>(Object.entries(json.model.vocab));
  for (const { content, id } of json.added_tokens) {
    t.equal(ids.get(content) ?? id, id, content);
    ids.set(content, id);
  }
  t.same(
    [...ids.values()].sort((a, b) => a - b),
    Array.from({ length: 256 + 2 + 2 + 1 }, (_, id) => id),
  );
  t.equal(tokenizer.vocabularySize, 261);
  t.equal(tokenizer.decode(tokenizer.encode('abcd bc')), 'abcd bc');
});

t.test('nothing to learn: no texts, empty ones, and none twice', async t => {
  for (const none of [[], [''], ['', ''], ['aé'], WORDS]) t.same(learnMerges(none, WORDS), []);
  t.equal(buildByteTokenizer(WORDS, []).constructor.name, 'ByteTokenizer');
});

t.test('of any number of bytes a bounded sample is read', async t => {
  const rng = Random.fromSeed(1);
  const ideographs = () =>
    Array.from({ length: 4000 }, () => String.fromCodePoint(0x4e00 + rng.integer(20_000))).join('');
  const many = Array.from({ length: 830 }, ideographs);
  const before = process.cpuUsage();
  const merges = learnMerges(many, WORDS);
  const { user } = process.cpuUsage(before);
  t.equal(merges.length, 512);
  t.ok(user < 20e6, `${user / 1e6} s for ten megabytes`);
  const longest = Math.max(...merges.map(pair => pair.join('').length));
  t.ok(longest <= 4 * 16 + 1, 'no token is longer than a piece');
  const lone = learnMerges(['ab'.repeat(5_000_000)], WORDS);
  t.same(lone.at(-1)!.join(''), 'ab'.repeat(8), 'one long text, of which the beginning is read');
});

t.test('saved and loaded it is the same', async t => {
  const folder = t.testdir();
  const tokenizer = learned(texts(100));
  await saveTokenizer(tokenizer, folder);
  const loaded = await loadTokenizer(folder);
  t.same(loaded.files, tokenizer.files);
  t.same([loaded.eosTokenId, loaded.padTokenId], [257, 256]);
  for (const text of texts(50, 3)) t.same(loaded.encode(text), tokenizer.encode(text));
});
