import { generateKeyPairSync } from 'node:crypto';
import t from 'tap';
import {
  canonicalJson,
  configHash,
  fingerprintOf,
  isAuthorName,
  parseSignedResult,
  type RunResult,
  signResult,
} from './signed-result.ts';

const keys = () => {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  return { privateKey, public_key: publicKey.export({ format: 'jwk' }).x! };
};
const ada = keys();
const FILE = 'evaluations/2026-11-26T21-00-00.000Z-1.jsonl';
const HASH = 'a'.repeat(64);

const RESULT: RunResult = {
  run: 'lake-1',
  config_sha256: HASH,
  version: '0.2.0',
  date: '2026-11-26T21:00:00.000Z',
  command: 'evaluate runs/lake-1',
  author: { name: 'Ada', public_key: ada.public_key },
  results: [
    {
      policy: 'checkpoint',
      mode: 'greedy',
      step: 30,
      tag: 'Lake',
      environment: {
        env_id: 'FrozenLake-v0',
        config: { size: 4 },
        max_turns: 5,
        max_actions_per_turn: 2,
        max_actions_per_trajectory: 10,
        program: false,
      },
      seeds: { first: 1000, levels: 64, attempts: 1 },
      success: 0.5,
      success_low: 0.4,
      success_high: 0.6,
      episodes: FILE,
    },
  ],
  files: [{ path: FILE, bytes: 100, sha256: HASH }],
};
const text = (value: unknown) => JSON.stringify(value);
const signed = (result: unknown) => text(signResult(result as RunResult, ada.privateKey));

t.test('a signed result is read back, however its JSON is laid out', async t => {
  t.same(parseSignedResult(signed(RESULT)).result, RESULT);
  const { result, ...rest } = JSON.parse(signed(RESULT));
  const turned = Object.fromEntries(Object.entries(result).reverse());
  t.same(parseSignedResult(JSON.stringify({ result: turned, ...rest }, null, 4)).result, RESULT);
});

t.test('a changed field, another key and a borrowed signature are refused', async t => {
  const document = JSON.parse(signed(RESULT));
  const wrong = { message: /the signature is of another key or of other results/ };
  const eve = keys().public_key;
  for (const change of [
    { results: [{ ...RESULT.results[0], success: 0.9 }] },
    { results: [{ ...RESULT.results[0], seeds: { first: 0, levels: 64, attempts: 1 } }] },
    { author: { name: 'Eve', public_key: ada.public_key } },
    { author: { name: 'Ada', public_key: eve } },
    { files: [{ path: FILE, bytes: 101, sha256: HASH }] },
  ])
    t.throws(() => parseSignedResult(text({ ...document, result: { ...RESULT, ...change } })), wrong);
  t.throws(() => parseSignedResult(text({ ...document, signature: 'A'.repeat(86) })), wrong);
});

t.test('hostile documents are refused by the field that is wrong', async t => {
  const refused = (result: object, message: RegExp) =>
    t.throws(() => parseSignedResult(signed(result)), { message });
  const file = (path: string) => ({
    ...RESULT,
    files: [{ ...RESULT.files[0], path }],
    results: [{ ...RESULT.results[0], episodes: path }],
  });
  for (const path of [
    '../lake-2/evaluations/a.jsonl',
    'evaluations/../config.yaml',
    'evaluations/../../x.jsonl',
    '/etc/passwd',
    'evaluations/.x.jsonl',
    'evaluations/a/b.jsonl',
    'evaluations\\a.jsonl',
    `evaluations/${'a'.repeat(200)}.jsonl`,
    'evaluations/a.jsonl\n',
  ])
    refused(file(path), /\/result\/.*(pattern)/);
  refused({ ...RESULT, files: [RESULT.files[0], RESULT.files[0]] }, /names a file twice/);
  refused(
    { ...RESULT, results: [{ ...RESULT.results[0], episodes: 'evaluations/b.jsonl' }] },
    /evaluations\/b\.jsonl is not among the `files`/,
  );
  refused({ ...RESULT, author: { ...RESULT.author, name: 'a\u202eb' } }, /\/result\/author\/name/);
  refused({ ...RESULT, author: { ...RESULT.author, name: 'a\nb' } }, /\/result\/author\/name/);
  refused({ ...RESULT, results: [{ ...RESULT.results[0], success: 2 }] }, /\/result\/results\/0\/success/);
  refused({ ...RESULT, results: [{ ...RESULT.results[0], success: '<b>1</b>' }] }, /success must be number/);
  refused({ ...RESULT, extra: 1 }, /\/result/);
  refused({ ...RESULT, files: [{ ...RESULT.files[0], bytes: 2 ** 40 }] }, /\/result\/files\/0\/bytes/);
  const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
  const nested = signed(RESULT).replace('{"size":4}', `{"size":${deep}}`);
  t.throws(() => parseSignedResult(nested), /nested too deeply|signature/);
  for (const other of ['', '{', 'null', '[]', '{}', '{"__proto__":{}}'])
    t.throws(() => parseSignedResult(other), /result\.json is no/);
});

t.test('equal values have one canonical text, and configs one hash with any servers', async t => {
  t.equal(canonicalJson({ b: [1, { d: null, c: 'ä' }], a: 1e21 }), '{"a":1e+21,"b":[1,{"c":"ä","d":null}]}');
  t.equal(canonicalJson({ a: undefined, b: 1 }), canonicalJson({ b: 1 }));
  const config = { seed: 1, tags: { Lake: { env_id: 'FrozenLake-v0' } } };
  const other = { servers: [{ url: 'http://x', token: 'secret' }], run: { name: 'b' }, ...config };
  t.equal(configHash(other), configHash(config));
  t.not(configHash({ ...config, seed: 2 }), configHash(config));
  t.match(fingerprintOf(ada.public_key), /^SHA256:[\w-]{43}$/);
  t.same(['Ada Lovelace', '<b>Ada</b>', '', 'a\tb', 'a'.repeat(101)].map(isAuthorName), [
    true,
    true,
    false,
    false,
    false,
  ]);
});
