import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import Type from 'typebox';
import { ConfigError, loadConfig, parseOverride, validateConfig } from './config.ts';

const Schema = Type.Object(
  {
    seed: Type.Integer({ minimum: 0, default: 0 }),
    algorithm: Type.Object(
      {
        advantage: Type.Enum(['gae', 'grpo', 'rloo'], { default: 'gae' }),
        gamma: Type.Number({ default: 1 }),
      },
      { additionalProperties: false, default: {} },
    ),
    tags: Type.Record(
      Type.String(),
      Type.Object(
        { env_id: Type.String(), max_turn: Type.Integer({ default: 5 }) },
        { additionalProperties: false },
      ),
      { default: {} },
    ),
    warm_start: Type.Union(
      [
        Type.Null(),
        Type.Object({ episodes: Type.Integer({ default: 200 }) }, { additionalProperties: false }),
      ],
      { default: null },
    ),
    servers: Type.Array(Type.String(), { default: [] }),
  },
  { additionalProperties: false },
);

type Files = { [name: string]: string };

const load = (t: { testdir(files: Files): string }, files: Files, overrides: string[] = []) =>
  loadConfig(join(t.testdir(files), 'run.yaml'), { schema: Schema, overrides });

const problemsOf = (action: () => unknown) => {
  try {
    action();
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  throw new Error('no ConfigError was thrown');
};

t.test('files compose, later ones and the command line win, defaults fill the rest', async t => {
  const config = load(
    t,
    {
      'base.yaml': 'seed: 1\nalgorithm: {gamma: 0.9}\nservers: [a, b]\n',
      'tags.yaml': 'tags: {Lake: {env_id: FrozenLake-v0}}\n',
      'run.yaml': 'extends: [base.yaml, tags.yaml]\nseed: 2\nservers: [c]\nwarm_start: {}\n',
    },
    ['algorithm.advantage=grpo', 'tags.Lake.max_turn=7', 'servers.1=d', 'warm_start.episodes=3'],
  );
  t.same(config, {
    seed: 2,
    algorithm: { gamma: 0.9, advantage: 'grpo' },
    tags: { Lake: { env_id: 'FrozenLake-v0', max_turn: 7 } },
    warm_start: { episodes: 3 },
    servers: ['c', 'd'],
  });
});

t.test('an empty file is all defaults', async t => {
  t.same(load(t, { 'run.yaml': '' }), {
    seed: 0,
    algorithm: { advantage: 'gae', gamma: 1 },
    tags: {},
    warm_start: null,
    servers: [],
  });
});

t.test('a wrong value names its key, file, line and the valid choices', async t => {
  const problems = problemsOf(() =>
    load(t, {
      'base.yaml': 'algorithm:\n  advantage: gea\n',
      'run.yaml': 'extends: base.yaml\nseed: -1\ntags:\n  Lake:\n    env_id: 4\n    max_turns: 3\n',
    }),
  );
  const of = (key: string) => problems.find(problem => problem.key === key)!;
  t.match(of('algorithm.advantage').where, /base\.yaml:2$/);
  t.match(of('algorithm.advantage').message, /"gea".*did you mean `gae`.*valid: gae, grpo, rloo/);
  t.match(of('seed').where, /run\.yaml:2$/);
  t.match(of('tags.Lake.env_id').message, /string/);
  t.match(of('tags.Lake.max_turns').where, /run\.yaml:6$/);
  t.match(of('tags.Lake.max_turns').message, /did you mean `max_turn`.*known here: env_id, max_turn/);
  t.equal(problems.length, 4);
});

t.test('a wrong key on the command line is shown as it was typed', async t => {
  const [problem] = problemsOf(() => load(t, { 'run.yaml': '' }, ['algorithm.gama=1']));
  t.equal(problem.where, 'command line (algorithm.gama=1)');
  t.match(problem.message, /did you mean `gamma`/);
  const [section] = problemsOf(() => load(t, { 'run.yaml': '' }, ['algoritm.gamma=1']));
  t.equal(section.where, 'command line (algoritm.gamma=1)');
});

t.test('problems inside a nullable part are reported, not "must be null"', async t => {
  const problems = problemsOf(() => load(t, { 'run.yaml': 'warm_start: {episodes: many}\n' }));
  t.equal(problems.length, 1);
  t.equal(problems[0].key, 'warm_start.episodes');
  t.match(problems[0].message, /integer.*"many"/);
  t.match(problemsOf(() => load(t, { 'run.yaml': 'warm_start: 3\n' }))[0].key, 'warm_start');
});

t.test('missing required keys, missing files, circles and broken YAML are named', async t => {
  const required = problemsOf(() => load(t, { 'run.yaml': 'tags: {Lake: {}}\n' }))[0];
  t.same([required.key, required.message], ['tags.Lake.env_id', 'is required and not set']);
  const message = (files: Files) => problemsOf(() => load(t, files))[0].message;
  t.match(message({ 'run.yaml': 'extends: nowhere.yaml' }), /no such config file, extended by .*run\.yaml/);
  t.match(
    message({ 'run.yaml': 'extends: bsae.yaml', 'base.yaml': '' }),
    /no such config file, extended by .*run\.yaml, did you mean `base`\?/,
  );
  t.match(
    message({ 'run.yaml': 'extends: a.yaml', 'a.yaml': 'extends: run.yaml' }),
    /extends itself through/,
  );
  t.match(message({ 'run.yaml': 'a: [1' }), /not YAML/);
  const chain = (levels: number): Files => ({
    'run.yaml': 'extends: [1.yaml, 1.yaml]',
    ...Object.fromEntries(
      Array.from({ length: levels }, (_, i) => [`${i + 1}.yaml`, `extends: [${i + 2}.yaml, ${i + 2}.yaml]`]),
    ),
    [`${levels + 1}.yaml`]: 'seed: 1',
  });
  t.match(message(chain(28)), /extends files more than 16 levels deep/);
  t.match(message(chain(13)), /extends more than 256 files, those of its files counted/);
  t.equal(load(t, chain(3)).seed, 1);
  const long = `# ${'x'.repeat(4 * 2 ** 20)}\nseed: 1`;
  t.match(message({ 'run.yaml': long }), /has 4194314 bytes, and a config file at most 4194304/);
  t.match(message({ 'run.yaml': 'extends: /dev/zero' }), /is not a regular file, extended by .*run\.yaml/);
  t.match(problemsOf(() => load(t, { 'run.yaml': '__proto__: {seed: 3}' }))[0].key, '__proto__');
  t.match(
    message({ 'run.yaml': 'seed: 1\ntags:\n  A: {env_id: X,\n    env_id: Y}\n' }),
    /`tags\.A\.env_id` is there twice, in lines 3 and 4: keep one/,
  );
  t.match(message({ 'run.yaml': '- 1' }), /map of keys/);
  t.match(message({ 'run.yaml': 'extends: 3' }), /names a file/);
});

t.test('aliases without end and integers that would lose digits are refused', async t => {
  const message = (text: string) => problemsOf(() => load(t, { 'run.yaml': text }))[0].message;
  const bomb = [...'bcdefg'].map((name, i) => `${name}: &${name} [${Array(9).fill(`*${'abcdef'[i]}`)}]`);
  t.match(message(`a: &a [x]\n${bomb.join('\n')}`), /its aliases .* repeat too much/);
  t.match(message('seed: &a [*a]'), /its aliases .* or hold themselves/);
  t.match(message('seed: 99999999999999999999'), /`seed`: 99999999999999999999 would lose digits/);
  t.throws(
    () => parseOverride('seed=99999999999999999999'),
    /would lose digits: integers go to 9007199254740991/,
  );
  t.throws(() => parseOverride('seed=&a [*a]'), /its aliases .* or hold themselves/);
  t.match(message('seed: .inf'), /must be integer, got Infinity/);
});

t.test('a path that begins with a dot is next to the file that sets it, if it exists there', t => {
  const schema = Type.Object({ a: Type.Any(), b: Type.Any() });
  const folder = t.testdir({
    base: { 'base.yaml': 'a: {folder: ./here, other: ./here}\nb: ../there', here: {} },
    there: {},
    'run.yaml': 'extends: base/base.yaml',
    bytes: {},
    'names.yaml': 'a: {folder: bytes}\nb: ./absent',
  });
  const load = (name: string, overrides: string[] = []) =>
    loadConfig(join(folder, name), { schema, paths: ['a.folder', 'b', 'c.d'], overrides });
  t.same(load('run.yaml'), {
    a: { folder: join(folder, 'base', 'here'), other: './here' },
    b: join(folder, 'there'),
  });
  t.same(load('names.yaml'), { a: { folder: 'bytes' }, b: './absent' }, 'else as written');
  t.equal(load('run.yaml', ['b=../there']).b, '../there', 'the command line is no file');
  t.end();
});

t.test('many keys take time linear in their number, and may repeat an anchor', async t => {
  const schema = Type.Object({ any: Type.Unknown() });
  const cost = (line: (i: number) => string) => {
    const file = join(t.testdir(), 'run.yaml');
    writeFileSync(file, `any:\n${Array.from({ length: 20_000 }, (_, i) => line(i)).join('\n')}\n`);
    const before = process.cpuUsage();
    loadConfig(file, { schema });
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1000;
  };
  const list = cost(i => `  - {k: ${i}}`);
  const map = cost(i => `  k${i}: 1`);
  t.ok(map < 4 * list, `${map} ms for a map, ${list} ms for a list`);
  const file = join(t.testdir({ 'run.yaml': 'any: {a: &a [1], b: *a}' }), 'run.yaml');
  t.same(loadConfig(file, { schema }), { any: { a: [1], b: [1] } });
});

t.test('overrides are parsed as YAML and malformed ones refused', async t => {
  t.same(parseOverride('a.b={x: [1, two]}'), { path: ['a', 'b'], value: { x: [1, 'two'] } });
  t.same(parseOverride('a=b=c'), { path: ['a'], value: 'b=c' });
  t.same(parseOverride('a=').value, null);
  for (const bad of ['a', '=1', 'a..b=1', 'a=[1']) t.throws(() => parseOverride(bad), ConfigError, bad);
  t.throws(() => load(t, { 'run.yaml': 'servers: []' }, ['servers.5=x']), /indexed with 0 to 0/);
});

t.test('a resolved config loads back to itself', async t => {
  const folder = t.testdir({ 'run.yaml': 'seed: 5\n' });
  const config = loadConfig(join(folder, 'run.yaml'), { schema: Schema });
  writeFileSync(join(folder, 'again.yaml'), JSON.stringify(config));
  t.same(loadConfig(join(folder, 'again.yaml'), { schema: Schema }), config);
  t.same(validateConfig(config, Schema), config);
});

const Parted = Type.Object({
  recipe: Type.Array(Type.String(), { default: [] }),
  a: Type.Integer(),
  b: Type.Integer({ default: 0 }),
  c: Type.Integer({ default: 0 }),
});

t.test('named parts stand above what a file extends and below its own keys', async t => {
  const folder = t.testdir({
    'base.yaml': 'a: 1\nb: 1\nc: 1\n',
    'run.yaml': 'extends: base.yaml\nrecipe: fast\nc: 3\n',
    parts: { 'fast.yaml': 'extends: ../more.yaml\nb: 2\nc: 2\n', 'slow.yaml': 'b: 7\nc: 7\n' },
    'more.yaml': 'a: 9\nb: 9\n',
  });
  const parts = { key: 'recipe', folder: join(folder, 'parts') };
  const read = (...overrides: string[]) =>
    loadConfig(join(folder, 'run.yaml'), { schema: Parted, overrides, parts });
  t.same(read(), { recipe: ['fast'], a: 9, b: 2, c: 3 });
  t.same(read('b=5'), { recipe: ['fast'], a: 9, b: 5, c: 3 });
  t.same(
    read('b=5', 'recipe=slow'),
    { recipe: ['slow'], a: 9, b: 5, c: 7 },
    'on the command line above the files',
  );
  t.same(read('recipe=[slow, fast]'), { recipe: ['slow', 'fast'], a: 9, b: 2, c: 2 });
  t.throws(
    () => read('recipe=fats'),
    /`recipe`: there is no "fats", did you mean `fast`\?; valid: fast, slow/,
  );
  t.throws(() => read('recipe=3'), /names a file or a list of files: fast, slow/);
  writeFileSync(join(folder, 'wrong.yaml'), 'a: 1\nrecipe: fats\n');
  t.throws(
    () => loadConfig(join(folder, 'wrong.yaml'), { schema: Parted, parts }),
    /wrong\.yaml:2: `recipe`/,
  );
});

t.test('many unknown keys are refused as one is', async t => {
  const schema = Type.Object(
    { a: Type.Object({ size: Type.Optional(Type.Number()) }, { additionalProperties: false }) },
    { additionalProperties: false },
  );
  const keys = Array.from({ length: 100 }, (_, i) => `sise${i}`);
  const a = Object.fromEntries(keys.map(key => [key, 1]));
  const problems = problemsOf(() => validateConfig({ a }, schema));
  t.match(problems[0], { key: 'a.sise0', message: 'unknown key, did you mean `size`?; known here: size' });
});

t.test('a key with a slash or of any length is named in full', async t => {
  const schema = Type.Object(
    { a: Type.Record(Type.String(), Type.Object({}, { additionalProperties: false })) },
    { additionalProperties: false },
  );
  const long = 'x'.repeat(100);
  const problems = problemsOf(() => validateConfig({ a: { 'b/c': { [long]: 1 }, d: 2 } }, schema));
  t.same(
    problems.map(({ key }) => key),
    [`a.b/c.${long}`, 'a.d'],
  );
});

t.test('a map of many keys in an override costs no more than as many maps', t => {
  const keys = Array.from({ length: 10_000 }, (_, i) => `k${i}: 1`);
  const cost = (value: string) => {
    const before = process.cpuUsage();
    parseOverride(`a=${value}`);
    const { user, system } = process.cpuUsage(before);
    return user + system;
  };
  const plain = cost(`[{${keys.join('},{')}}]`);
  const map = cost(`{${keys.join(',')}}`);
  t.ok(map < 4 * plain, `${map} µs for a map, ${plain} µs for a list`);
  t.throws(() => parseOverride('a={b: {c: 1, c: 2}}'), /`b\.c` is there twice/);
  t.end();
});
