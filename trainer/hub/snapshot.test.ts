import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { lock } from 'proper-lockfile';
import t from 'tap';
import { cachedSnapshot, ModelCache, modelOfSnapshot, parseModelName } from './cache.ts';
import { startHub, TEST_TOKEN } from './hub.test-data.ts';
import { allowedFiles, hubSettings } from './hub-settings.ts';
import { fetchSnapshot, type SnapshotOptions } from './snapshot.ts';

const folder = await mkdtemp(join(tmpdir(), 'ragen-hub-'));
const hub = await startHub();
t.after(async () => {
  await hub.close();
  await rm(folder, { recursive: true });
});
t.beforeEach(() => {
  hub.fault = () => undefined;
  hub.log.length = 0;
});

const weights = Buffer.alloc(200_000, 'weights ');
const oid = createHash('sha256').update(weights).digest('hex');
const files = {
  'config.json': '{"model_type":"qwen2"}',
  'tokenizer.json': '{}',
  'model.safetensors': weights,
  'chat_template.jinja': '{{ messages }}',
  'README.md': '# a model',
};
let caches = 0;

function optionsWith(more: Partial<SnapshotOptions & { env: Record<string, string> }> = {}): SnapshotOptions {
  const { env, ...rest } = more;
  return {
    settings: hubSettings({ HF_ENDPOINT: hub.endpoint, HF_HOME: join(folder, `cache-${++caches}`), ...env }),
    firstPauseMs: 1,
    ...rest,
  };
}
const model = parseModelName('org/model')!;

t.test('names are organization/name with a revision; paths are none', async t => {
  t.same(parseModelName('Qwen/Qwen2.5-0.5B@v1/a'), { id: 'Qwen/Qwen2.5-0.5B', revision: 'v1/a' });
  t.same(parseModelName('a/b@v1:c-Q4_0.gguf'), { id: 'a/b', revision: 'v1', file: 'c-Q4_0.gguf' });
  for (const file of ['c.bin', '../c.gguf', 'd/c.gguf', '.gguf', 'c.gguf:c.gguf', ''])
    t.equal(parseModelName(`a/b:${file}`), undefined, file);
  for (const path of [
    'scratch',
    './a',
    '/a/b',
    '../a',
    'a/b/c',
    'a/../b',
    'a/b@../c',
    'a--b/c',
    'a/b@',
    'runs/',
  ]) {
    t.equal(parseModelName(path), undefined, path);
  }
});

t.test('settings follow the variables of Python', async t => {
  const home = join(folder, 'home');
  await mkdir(home);
  await writeFile(join(home, 'token'), `${TEST_TOKEN}\n`);
  t.match(hubSettings({ HF_HOME: home, HF_HUB_OFFLINE: '1' }), {
    endpoint: 'https://huggingface.co',
    cache: join(home, 'hub'),
    token: TEST_TOKEN,
    offline: true,
  });
  t.equal(hubSettings({ XDG_CACHE_HOME: '/c' }).cache, '/c/huggingface/hub');
  t.match(hubSettings({ HF_HOME: home, HF_HUB_CACHE: '/d', HF_TOKEN: 'hf_b' }), {
    cache: '/d',
    token: 'hf_b',
  });
  t.throws(() => hubSettings({ HF_ENDPOINT: 'http://example.org' }), /HF_ENDPOINT must be an https address/);
});

t.test('a model is laid out as Python lays it out, once', async t => {
  const commit = hub.put('org/model', {
    ...files,
    'onnx/model.onnx': 'x',
    'pytorch_model.bin': 'pickle',
    'run.py': '',
  });
  const options = optionsWith();
  const seen: number[] = [];
  const found = await fetchSnapshot(model, { ...options, progress: bytes => seen.push(bytes) });
  const root = join(options.settings.cache, 'models--org--model');
  t.equal(found.folder, join(root, 'snapshots', commit));
  t.same((await readdir(found.folder)).sort(), Object.keys(files).sort());
  t.equal(await readlink(join(found.folder, 'model.safetensors')), `../../blobs/${oid}`);
  t.ok((await readFile(join(found.folder, 'model.safetensors'))).equals(weights));
  t.equal(await readFile(join(root, 'refs/main'), 'utf8'), commit);
  t.same(await readdir(join(root, 'blobs')).then(names => names.filter(name => name.includes('.'))), []);
  t.equal(
    seen.at(-1),
    Object.values(files).reduce((sum, data) => sum + data.length, 0),
  );
  t.same(modelOfSnapshot(found.folder), { id: 'org/model', revision: commit });
  hub.log.length = 0;
  t.same(await fetchSnapshot(model, options), found);
  t.same(hub.log, ['GET /api/models/org/model/revision/main'], 'nothing is downloaded again');
  const offline = { ...options, settings: { ...options.settings, offline: true } };
  t.same(await fetchSnapshot(model, offline), found);
  await t.rejects(
    fetchSnapshot({ id: 'org/other', revision: 'main' }, offline),
    /not in the cache .* HF_HUB_OFFLINE/,
  );
  const gone = { ...options, settings: { ...options.settings, endpoint: 'http://127.0.0.1:9' } };
  const notes: string[] = [];
  t.same(await fetchSnapshot(model, { ...gone, note: text => notes.push(text) }), found);
  t.match(notes.at(-1), /cannot be reached: using org\/model@main as the cache holds it/);
  t.equal(cachedSnapshot(options.settings.cache, { id: 'org/model', revision: 'v2' }), undefined);
});

t.test('a download continues where its connection was cut, and after 429 and 503', async t => {
  hub.put('org/model', files);
  let faults = 0;
  const statuses = [429, 503];
  hub.fault = (request, path) => {
    if (path === `/${oid}` && request.method === 'GET' && faults++ < 2) return 'cut';
    return path.includes('revision') ? statuses.shift() : undefined;
  };
  const { folder: snapshot } = await fetchSnapshot(model, optionsWith());
  t.ok((await readFile(join(snapshot, 'model.safetensors'))).equals(weights));
  t.equal(hub.log.filter(line => line === `GET store/${oid}`).length, 3);
});

t.test('a download that an earlier process left continues, unless the file has changed', async t => {
  hub.put('org/model', files);
  for (const left of [weights.subarray(0, 150_000), Buffer.alloc(150_000, 'other'), Buffer.alloc(300_000)]) {
    const options = optionsWith();
    const cache = new ModelCache(options.settings.cache, 'org/model');
    await mkdir(join(cache.folder, 'blobs'), { recursive: true });
    await writeFile(cache.partial(oid), left);
    const ranges: (string | undefined)[] = [];
    hub.fault = (request, path) => {
      if (path === `/${oid}`) ranges.push(request.headers.range);
      return undefined;
    };
    const { folder: snapshot } = await fetchSnapshot(model, options);
    t.ok((await readFile(join(snapshot, 'model.safetensors'))).equals(weights));
    if (left.length === 150_000) t.equal(ranges[0], 'bytes=150000-');
  }
});

t.test('a file that is not what its hash says is refused, small or large', async t => {
  hub.put('org/model', files);
  for (const wrong of [`/${oid}`, '/org/model/resolve/']) {
    hub.fault = (request, path) =>
      request.method === 'GET' && path.startsWith(wrong) ? 'corrupt' : undefined;
    const options = optionsWith();
    await t.rejects(fetchSnapshot(model, options), /arrived with the hash .* twice/);
    const blobs = await readdir(join(options.settings.cache, 'models--org--model/blobs'));
    t.notOk(
      blobs.some(name => name === oid && wrong.includes(oid)),
      'it is not kept',
    );
  }
  hub.fault = (_request, path) => (path === `/${oid}` ? 500 : undefined);
  await t.rejects(
    fetchSnapshot(model, optionsWith()),
    /model\.safetensors of org\/model@.*given up after 5 attempts.*answers 500/,
  );
  let silences = 0;
  hub.fault = (_request, path) => (path === `/${oid}` && silences++ === 0 ? 'silent' : undefined);
  await fetchSnapshot(model, optionsWith({ silenceMs: 1000 }));
  t.equal(silences, 2);
});

t.test('the token goes to the hub alone, and redirects stay on https or this machine', async t => {
  hub.put('org/model', files, { gated: true });
  await t.rejects(
    fetchSnapshot(model, optionsWith()),
    /gated: accept its terms at .*\/org\/model .* set HF_TOKEN/,
  );
  await t.rejects(
    fetchSnapshot(model, optionsWith({ env: { HF_TOKEN: 'hf_wrong' } })),
    /the token in use .* has no access/,
  );
  hub.log.length = 0;
  await fetchSnapshot(model, optionsWith({ env: { HF_TOKEN: TEST_TOKEN } }));
  t.ok(hub.log.some(line => line.includes('store')));
  t.same(
    hub.log.filter(line => line.includes('+token') === line.includes('store')),
    [],
  );
  for (const redirect of ['http://example.org/a', 'ftp://127.0.0.1/a', 'file:///etc/passwd']) {
    hub.fault = (request, path) =>
      request.method === 'GET' && path.includes('resolve') ? { redirect } : undefined;
    await t.rejects(
      fetchSnapshot(model, optionsWith({ env: { HF_TOKEN: TEST_TOKEN } })),
      /not https: refused/,
    );
  }
  hub.fault = (_request, path) => ({ redirect: `${hub.endpoint}${path}` });
  await t.rejects(fetchSnapshot(model, optionsWith()), /redirects more than 5 times/);
});

t.test('missing models and revisions, and what is not a hub, are explained', async t => {
  hub.put('org/model', files);
  await t.rejects(
    fetchSnapshot({ id: 'org/nothing', revision: 'main' }, optionsWith()),
    /does not exist, or is private; set HF_TOKEN/,
  );
  const env = { HF_TOKEN: TEST_TOKEN };
  await t.rejects(
    fetchSnapshot({ id: 'org/nothing', revision: 'main' }, optionsWith({ env })),
    /has no org\/nothing@main: check the spelling/,
  );
  await t.rejects(
    fetchSnapshot({ id: 'org/model', revision: 'v9' }, optionsWith()),
    /has no such revision of org\/model@v9/,
  );
  const server = createServer((_request, reply) => reply.end('<html>')).listen(0, '127.0.0.1');
  await new Promise(done => server.once('listening', done));
  const address = server.address() as { port: number };
  await t.rejects(
    fetchSnapshot(model, optionsWith({ env: { HF_ENDPOINT: `http://127.0.0.1:${address.port}` } })),
    /is it a hub/,
  );
  server.close();
});

t.test('names that lead out of the folder and weights as pickles are refused', async t => {
  for (const name of [
    '../../evil.json',
    '/etc/passwd',
    'a\\..\\b.json',
    'c:evil.json',
    'a//b.json',
    'a\u0000.json',
  ]) {
    hub.put('org/evil', { ...files, [name]: 'x' });
    const options = optionsWith();
    await t.rejects(
      fetchSnapshot({ id: 'org/evil', revision: 'main' }, options),
      /leads out of its folder/,
      name,
    );
    t.notOk(existsSync(options.settings.cache));
  }
  hub.put('org/pickle', { 'config.json': '{}', 'pytorch_model.bin': 'x' });
  await t.rejects(
    fetchSnapshot({ id: 'org/pickle', revision: 'main' }, optionsWith()),
    /pytorch_model\.bin only, a format that runs code/,
  );
  const names = [
    'model-00001-of-00002.safetensors',
    'consolidated.safetensors',
    'merges.txt',
    'tokenizer.model',
  ];
  t.same(allowedFiles(names, 'a'), ['model-00001-of-00002.safetensors', 'merges.txt']);
});

t.test('two at once download each file once; the lock of a dead process is not an obstacle', async t => {
  hub.put('org/model', files);
  const options = optionsWith();
  const cache = new ModelCache(options.settings.cache, 'org/model');
  await Promise.all([fetchSnapshot(model, options), fetchSnapshot(model, options)]);
  t.equal(hub.log.filter(line => line === `GET store/${oid}`).length, 1);
  t.ok((await lstat(cache.blob(oid))).isFile());
  t.notOk(existsSync(cache.lock(oid)));
});

t.test('a download that another process has is reported once, waited for, and can be aborted', async t => {
  hub.put('org/model', files);
  const holding = optionsWith();
  const cache = new ModelCache(holding.settings.cache, 'org/model');
  await mkdir(join(cache.folder, 'blobs'), { recursive: true });
  await mkdir(dirname(cache.lock(oid)), { recursive: true });
  const unlock = await lock(cache.blob(oid), { realpath: false, lockfilePath: cache.lock(oid) });
  const aborted = new AbortController();
  const waiting = (text: string) => text.startsWith('another process is downloading model.safetensors');
  const abort = (text: string) => {
    if (waiting(text)) aborted.abort();
  };
  await t.rejects(fetchSnapshot(model, { ...holding, signal: aborted.signal, note: abort }), {
    name: 'AbortError',
  });
  const notes: string[] = [];
  let unlocked: Promise<void> | undefined;
  const release = (text: string) => {
    notes.push(text);
    if (waiting(text)) unlocked = unlock();
  };
  const found = await fetchSnapshot(model, { ...holding, note: release });
  await unlocked;
  t.ok((await readFile(join(found.folder, 'model.safetensors'))).equals(weights));
  t.equal(notes.filter(waiting).length, 1);
});

t.test('a GGUF file is brought alone, and found again without the hub', async t => {
  const commit = hub.put('org/quantized', { 'README.md': '#', 'a.gguf': 'GGUF a', 'b.gguf': 'GGUF b' });
  const options = optionsWith();
  const { model, folder } = await fetchSnapshot(parseModelName('org/quantized:b.gguf')!, options);
  t.same(model, { id: 'org/quantized', revision: commit, file: 'b.gguf' });
  t.equal(await readFile(folder, 'utf8'), 'GGUF b');
  t.same(await readdir(dirname(folder)), ['b.gguf']);
  t.same(modelOfSnapshot(folder), model);
  const offline = { ...options, settings: { ...options.settings, offline: true } };
  t.equal((await fetchSnapshot(parseModelName('org/quantized:b.gguf')!, offline)).folder, folder);
  await t.rejects(fetchSnapshot(parseModelName('org/quantized:a.gguf')!, offline), /is not in the cache/);
  await t.rejects(fetchSnapshot(parseModelName('org/quantized:c.gguf')!, options), {
    message: /org\/quantized@main:c\.gguf is not there; GGUF files of this repository: a\.gguf, b\.gguf/,
  });
  await t.rejects(fetchSnapshot(parseModelName('org/quantized')!, options), {
    message: /has its weights in GGUF files: name one behind a colon, such as :a\.gguf/,
  });
});
