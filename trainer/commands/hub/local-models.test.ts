import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { lacksPython, PYTHON, PYTHON_MS } from '../../../test/python.test-data.ts';
import { startHub, TEST_TOKEN } from '../../hub/hub.test-data.ts';
import { findModel } from '../../policy/checkpoint/model-folder.ts';
import { LocalPolicy } from '../../policy/local-policy.ts';
import { silentProgress } from '../../tracking/progress.ts';
import { tinySettings } from '../../training/runs.test-data.ts';
import { dryRun } from '../train/train.ts';
import { localModel, localSettings, withoutRevisions } from './local-models.ts';

const golden = new URL('../../../test/golden/models/qwen2-tiny/', import.meta.url).pathname;
const folder = await realpath(await mkdtemp(join(tmpdir(), 'ragen-hub-')));
const hub = await startHub();
const env = { HF_ENDPOINT: hub.endpoint, HF_HOME: join(folder, 'home'), HF_TOKEN: TEST_TOKEN };
Object.assign(process.env, env);
t.after(async () => {
  await hub.close();
  await rm(folder, { recursive: true });
});

async function filesOf(path: string): Promise<Record<string, Buffer>> {
  const entries = await readdir(path, { withFileTypes: true });
  const files = entries
    .filter(entry => entry.isFile())
    .map(async ({ name }) => {
      return [name, await readFile(join(path, name))] as const;
    });
  return Object.fromEntries(await Promise.all(files));
}

const commit = hub.put('org/tiny', await filesOf(golden));
const snapshot = join(env.HF_HOME, 'hub/models--org--tiny/snapshots', commit);
const options = { progress: silentProgress };

t.test('a run keeps the commit of its model, and adapters learned next to it name both', async t => {
  const settings = tinySettings('http://127.0.0.1:1', t.testdir(), 'tiny');
  const onHub = { ...settings, policy: { ...settings.policy, init: 'org/tiny', value_head: false } };
  const { named, local } = await localSettings(onHub, options);
  t.equal(named.policy.init, `org/tiny@${commit}`);
  t.equal(local.policy.init, snapshot);
  t.same(withoutRevisions(named), onHub);
  const text = await dryRun(local, new AbortController().signal, named);
  t.match(text, `init: org/tiny@${commit}`);
  const lora = { rank: 2, alpha: 4, rankStabilized: false, dora: false, modules: ['q_proj'] as const };
  const policy = await LocalPolicy.create({ model: snapshot, lora, seed: 1, valueHead: false, workers: 1 });
  const adapter = join(folder, 'adapter');
  await policy.publish(adapter);
  await policy.close();
  const config = JSON.parse(await readFile(join(adapter, 'adapter_config.json'), 'utf8'));
  t.match(config, { base_model_name_or_path: 'org/tiny', revision: commit });
  hub.put('org/adapter', await filesOf(adapter));
  t.same(await findModel(adapter), { base: snapshot, adapter });
  await rm(env.HF_HOME, { recursive: true });
  await t.rejects(findModel(adapter), /the base of the adapter .* is not here: its config names org\/tiny/);
  const found = await localModel('org/adapter', options);
  t.same(await findModel(found.folder), { base: snapshot, adapter: found.folder }, 'its base came along');
});

t.test('a folder of the name takes precedence, with a note; a missing one is explained', async t => {
  const cwd = process.cwd();
  process.chdir(folder);
  t.teardown(() => process.chdir(cwd));
  const notes: string[] = [];
  const progress = { ...silentProgress, note: (text: string) => notes.push(text) };
  await mkdir('org/tiny', { recursive: true });
  await writeFile('org/tiny/config.json', '{}');
  t.same(await localModel('org/tiny', { progress }), { name: 'org/tiny', folder: 'org/tiny' });
  t.match(notes, ['org/tiny: the folder of this name here, not the model on the hub']);
  await rm('org', { recursive: true });
  await t.rejects(localModel('runs/nothing-001', options), {
    name: 'HubError',
    message:
      /runs\/nothing-001 is not a folder here, and as a model on the Hub: .* has no runs\/nothing-001@main/,
  });
  t.same(await localModel('./runs/nothing', options), { name: './runs/nothing', folder: './runs/nothing' });
});

t.test(
  "Python's huggingface_hub reads this cache, and what it downloads and pushes is read here",
  { skip: lacksPython('huggingface_hub'), timeout: PYTHON_MS },
  async t => {
    await localModel('org/tiny', options);
    const program = `
import json, os
from huggingface_hub import HfApi, snapshot_download
here = snapshot_download('org/tiny', local_files_only=True)
there = snapshot_download('org/tiny', cache_dir='python')
api = HfApi()
api.create_repo('org/pushed', private=True)
api.upload_folder(repo_id='org/pushed', folder_path=there)
print(json.dumps([here, there]))
`;
    const { stdout } = await promisify(execFile)(PYTHON, ['-c', program], {
      cwd: folder,
      // Large files go the older way, which this hub speaks.
      env: { ...process.env, HF_HUB_DISABLE_XET: '1' },
    });
    const [here, there] = JSON.parse(stdout.trimEnd().split('\n').at(-1)!);
    t.equal(here, snapshot);
    hub.log.length = 0;
    const shared = { ...options, env: { ...env, HF_HUB_CACHE: join(folder, 'python') } };
    t.equal((await localModel('org/tiny', shared)).folder, await realpath(there));
    t.same(
      hub.log.filter(line => !line.startsWith('GET /api/models/org/tiny/revision')),
      [],
    );
    const pushed = await localModel('org/pushed', options);
    const names = ['config.json', 'model.safetensors'];
    for (const name of names) {
      t.ok((await readFile(join(pushed.folder, name))).equals(await readFile(join(golden, name))));
    }
  },
);
