import { execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { findServedModel } from '../commands/hub/local-models.ts';
import { Models } from './models.ts';
import { goldenFolder, startServer } from './serve.test-data.ts';

const MAIN = fileURLToPath(new URL('../main.ts', import.meta.url));
/** A failed start ends the process so soon after it has said why. */
const LONGEST_EXIT_MS = 20_000;

type Json = Record<string, never>;

/** A copy of a good model, to be made bad. */
function modelFolder(t: Pick<Test, 'testdir'>): string {
  const folder = join(t.testdir({}), 'model');
  cpSync(goldenFolder('qwen2-tiny'), folder, {
    recursive: true,
    filter: path => !/(dora|lora)$|(adapters|expected)\.json$/.test(path),
  });
  return folder;
}

function change(file: string, change: (json: Json) => void): void {
  const json = JSON.parse(readFileSync(file, 'utf8'));
  change(json);
  writeFileSync(file, JSON.stringify(json));
}

function makePipe(path: string): void {
  rmSync(path, { force: true });
  execFileSync('mkfifo', [path]);
}

/** Makes a sharded model with an index that names a shard. */
function nameShard(folder: string, shard: string): void {
  const weights = join(folder, 'model.safetensors');
  const length = Number(readFileSync(weights).readBigUInt64LE());
  const names = Object.keys(JSON.parse(readFileSync(weights).toString('utf8', 8, 8 + length)));
  const map = Object.fromEntries(names.filter(name => name !== '__metadata__').map(name => [name, shard]));
  writeFileSync(`${weights}.index.json`, JSON.stringify({ weight_map: map }));
  mkdirSync(join(folder, 'part'), { recursive: true });
  cpSync(weights, join(folder, 'part', 'x.safetensors'));
  renameSync(weights, join(folder, '..', 'x.safetensors'));
}

/** Faults of a folder, each with the text of its refusal. */
const ATTACKS: Readonly<Record<string, readonly [attack: (folder: string) => void, refusal: RegExp]>> = {
  'a token with the id 2^31': [
    folder =>
      change(join(folder, 'tokenizer.json'), ({ model }) =>
        Object.assign((model as Json).vocab, { far: 2 ** 31 }),
      ),
    /the id of the token "far" must be an integer from 0 to 4194303, got 2147483648/,
  ],
  'an added token with the id 2^31': [
    folder =>
      change(join(folder, 'tokenizer.json'), json =>
        Object.assign(json, { added_tokens: [{ id: 2 ** 31, content: '<far>', special: true }] }),
      ),
    /the id of the token "<far>" must be an integer/,
  ],
  'a decoder that matches a pattern': [
    folder =>
      change(join(folder, 'tokenizer.json'), json =>
        Object.assign(json, {
          decoder: { type: 'Replace', pattern: { Regex: '(?:a|a)*$' }, content: '' },
        }),
      ),
    /the decoder .* is not supported/,
  ],
  'decoders that double a text': [
    folder =>
      change(join(folder, 'tokenizer.json'), json =>
        Object.assign(json, {
          decoder: {
            type: 'Sequence',
            decoders: [{ type: 'Replace', pattern: { String: 'a' }, content: 'aa' }],
          },
        }),
      ),
    /a decoder may replace a text by one that is not longer/,
  ],
  'a chat template without end': [
    folder =>
      writeFileSync(
        join(folder, 'chat_template.jinja'),
        '{% for i in range(1000000) %}{% for j in range(1000000) %}{% endfor %}{% endfor %}',
      ),
    /the chat template cannot be used: takes more than 2\S* s/,
  ],
  'a pipe as tokenizer': [
    folder => makePipe(join(folder, 'tokenizer.json')),
    /tokenizer\.json is not a regular file/,
  ],
  'a pipe as config': [folder => makePipe(join(folder, 'config.json')), /config\.json is not a regular file/],
  'a pipe as weights': [
    folder => makePipe(join(folder, 'model.safetensors')),
    /model\.safetensors is not a regular file/,
  ],
  'a pipe as generation config': [
    folder => makePipe(join(folder, 'generation_config.json')),
    /generation_config\.json is not a regular file/,
  ],
  'a pipe as settings of a run': [
    folder => makePipe(join(folder, 'config.yaml')),
    /config\.yaml is not a regular file/,
  ],
  'a link out of the folder': [
    folder => {
      const path = join(folder, 'chat_template.jinja');
      rmSync(path);
      writeFileSync(join(folder, '..', 'secret.txt'), 'secret');
      symlinkSync('../secret.txt', path);
    },
    /chat_template\.jinja is a link to .*secret\.txt, outside the model's folder/,
  ],
  'a shard in a folder above': [
    folder => nameShard(folder, '../x.safetensors'),
    /names the shard "\.\.\/x\.safetensors": a shard is a \.safetensors file next to the index/,
  ],
  'a shard in a folder below': [
    folder => nameShard(folder, 'part/x.safetensors'),
    /names the shard "part\/x\.safetensors"/,
  ],
  'a shard without end': [folder => nameShard(folder, '/dev/zero'), /names the shard "\/dev\/zero"/],
  'a header without shapes': [
    folder => {
      const header = Buffer.from('{"model.norm.weight":7}');
      const length = Buffer.alloc(8);
      length.writeBigUInt64LE(BigInt(header.length));
      writeFileSync(join(folder, 'model.safetensors'), Buffer.concat([length, header]));
    },
    /the header's entry of model\.norm\.weight must have dtype, shape and data_offsets/,
  ],
  'a trillion layers': [
    folder => change(join(folder, 'config.json'), json => Object.assign(json, { num_hidden_layers: 1e12 })),
    /layers must be at most 1024, got 1000000000000/,
  ],
};

for (const [name, [attack, refusal]] of Object.entries(ATTACKS)) {
  t.test(`a hostile folder is refused by name: ${name}`, { timeout: 20_000 }, async t => {
    const folder = modelFolder(t);
    attack(folder);
    const opened = async () =>
      Models.open({ ...(await findServedModel(folder)), maxAdapters: 1, policy: { workers: 1 } });
    await t.rejects(opened(), { message: refusal });
  });
}

t.test('links of a hub cache to its blobs are followed, those to other places are not', async t => {
  const commit = '0123456789'.repeat(4);
  const plain = modelFolder(t);
  const model = join(plain, '..', 'models--a--b');
  const folder = join(model, 'snapshots', commit);
  for (const name of ['snapshots', 'blobs']) mkdirSync(join(model, name), { recursive: true });
  renameSync(plain, folder);
  renameSync(join(folder, 'config.json'), join(model, 'blobs', 'x'));
  symlinkSync('../../blobs/x', join(folder, 'config.json'));
  const models = await Models.open({ folder, name: 'a', maxAdapters: 1, policy: { workers: 1 } });
  await models.close();
  rmSync(join(folder, 'config.json'));
  writeFileSync(join(model, '..', 'config.json'), '{}');
  symlinkSync('../../../config.json', join(folder, 'config.json'));
  const outside = Models.open({ folder, name: 'a', maxAdapters: 1, policy: { workers: 1 } });
  await t.rejects(outside, { message: /config\.json is a link to/ });
});

t.test('an endless template or pattern costs its own requests alone', async t => {
  const folder = modelFolder(t);
  const template = join(folder, 'chat_template.jinja');
  const trap = `{% if messages[0].content == 'trap' %}{% for i in range(1000000) %}{% for j in range(1000000) %}{% endfor %}{% endfor %}{% endif %}`;
  writeFileSync(template, trap + readFileSync(template, 'utf8'));
  change(join(folder, 'tokenizer.json'), json =>
    Object.assign(json, {
      pre_tokenizer: {
        type: 'Sequence',
        pretokenizers: [
          { type: 'Split', pattern: { Regex: '(?:a|a)*b' }, behavior: 'Isolated', invert: false },
          json.pre_tokenizer,
        ],
      },
    }),
  );
  const { request } = await startServer(t, folder);
  const slow = 'a'.repeat(60);
  const attacks = [
    request('POST', '/v1/chat/completions', { messages: [{ role: 'user', content: 'trap' }] }),
    request('POST', '/tokenize', { messages: [{ role: 'user', content: 'trap' }] }),
    request('POST', '/v1/completions', { prompt: slow }),
    request('POST', '/v1/completions', { prompt: [3], bad_words: [slow] }),
  ];
  let isOver = false;
  const over = Promise.all(attacks).finally(() => {
    isOver = true;
  });
  let longestMs = 0;
  while (!isOver) {
    const began = performance.now();
    await request('POST', '/v1/completions', { prompt: [3, 4], max_tokens: 2, ignore_eos: true });
    longestMs = Math.max(longestMs, performance.now() - began);
  }
  const messages = [
    /chat template takes more/,
    /chat template takes more/,
    /tokenizer takes more/,
    /for bad_words/,
  ];
  for (const [i, { status, body }] of (await over).entries()) {
    t.equal(status, 400);
    t.match(body.error.message, messages[i]);
  }
  t.ok(longestMs < 2000, `others were answered within ${longestMs} ms`);
  const after = await request('POST', '/v1/chat/completions', {
    messages: [{ role: 'user', content: 'hello' }],
    max_tokens: 2,
  });
  t.equal(after.status, 200);
});

t.test('a failed start ends the process with a status other than 0', async t => {
  const pipes = modelFolder(t);
  makePipe(join(pipes, 'model.safetensors'));
  const cases: [target: string, args: string[], why: RegExp][] = [
    [pipes, [], /not a regular file/],
    [goldenFolder('qwen2-tiny'), ['--adapter', `a=${tmpdir()}`], /cannot be loaded/],
    [goldenFolder('qwen2-tiny'), ['--host', '0.0.0.0'], /set a token/],
  ];
  for (const [target, args, why] of cases) {
    const child = spawn(process.execPath, [MAIN, 'serve', target, '--port', '0', '--workers', '1', ...args], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    t.teardown(() => child.kill('SIGKILL'));
    let said = '';
    let saidAt = 0;
    child.stderr.on('data', chunk => {
      said += chunk;
      if (why.test(said)) saidAt ||= performance.now();
    });
    const code = await new Promise(resolve => child.once('exit', resolve));
    t.equal(code, 1);
    t.match(said, why);
    t.ok(performance.now() - saidAt < LONGEST_EXIT_MS, 'it ends soon');
  }
});
