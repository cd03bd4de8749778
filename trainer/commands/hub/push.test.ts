import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import { parse, stringify } from 'yaml';
import { serveHttp } from '../../../test/local-server.test-data.ts';
import { startHub, TEST_TOKEN } from '../../hub/hub.test-data.ts';
import { silentProgress } from '../../tracking/progress.ts';
import { initialState } from '../../training/run-folder/checkpoint.ts';
import { tinySettings } from '../../training/runs.test-data.ts';
import { push, validationCurve } from './push.ts';

const golden = new URL('../../../test/golden/models/qwen2-tiny/', import.meta.url).pathname;
const folder = await mkdtemp(join(tmpdir(), 'ragen-push-'));
const hub = await startHub();
const env = { HF_ENDPOINT: hub.endpoint, HF_HOME: join(folder, 'home'), HF_TOKEN: TEST_TOKEN };
const options = { env, progress: silentProgress };
t.after(async () => {
  await hub.close();
  await rm(folder, { recursive: true });
});
const filesOf = (id: string) => {
  const model = hub.models.get(id)!;
  return model.commits.get(model.refs.get('main')!)!;
};

t.test('a run is pushed with a card of its settings, curve and evaluation', async t => {
  const run = join(folder, 'runs/tiny');
  const policy = join(run, 'checkpoints/step-000002/policy');
  await mkdir(policy, { recursive: true });
  await cp(golden, policy, { recursive: true });
  await writeFile(join(policy, 'optimizer.json'), '{}');
  const tiny = tinySettings('http://127.0.0.1:1', folder, 'tiny');
  const servers = [{ ...tiny.servers[0], token: 'secret-token' }];
  const settings = { ...tiny, servers, policy: { ...tiny.policy, init: 'org/base' } };
  await writeFile(join(run, 'config.yaml'), stringify(settings));
  const state = { ...initialState(0), step: 2 };
  await writeFile(join(policy, '../trainer.json'), JSON.stringify(state));
  const validations = [
    { step: 0, success: 0.1, low: 0.05, high: 0.2 },
    { step: 2, success: 0.5, low: 0.4, high: 0.6 },
  ];
  await writeFile(join(run, 'status.json'), JSON.stringify({ validations }));
  await mkdir(join(run, 'evaluations'));
  const row = { policy: 'checkpoint', tag: 'tiny', mode: 'greedy', episodes: 100, success: 0.61 };
  const rows = [{ ...row, success_low: 0.51, success_high: 0.7 }];
  await writeFile(join(run, 'evaluations/a.json'), JSON.stringify({ rows }));
  let refusals = 0;
  hub.fault = (_request, path) => (path.includes('commit') && refusals++ === 0 ? 503 : undefined);
  await push(run, 'org/pushed', { ...options, private: true, license: 'apache-2.0' });
  hub.fault = () => undefined;
  t.equal(hub.models.get('org/pushed')!.private, true);
  const files = filesOf('org/pushed');
  t.notOk([...files.keys()].some(name => name.startsWith('optimizer')));
  t.ok(files.get('model.safetensors')!.equals(await readFile(join(golden, 'model.safetensors'))));
  const card = files.get('README.md')!.toString();
  t.match(parse(card.split('---\n')[1]), {
    library_name: 'transformers',
    license: 'apache-2.0',
    base_model: 'org/base',
    base_model_relation: 'finetune',
  });
  t.match(card, '| 2 | 50 % | 40 % to 60 % |');
  t.match(card, '![Success of validation by iteration](validation.svg)');
  const curve = files.get('validation.svg')!.toString();
  t.match(curve, '<polyline class="curve" points="52,199.6 624,118"/>');
  t.match(curve, '<polygon class="interval"');
  t.equal(validationCurve(validations.slice(1)), undefined, 'one point is not a curve');
  t.match(card, '| checkpoint | tiny | greedy | 100 | 61 % | 51 % to 70 % |');
  t.match(card, /for 2 iterations/);
  t.notMatch(card, /secret-token|127\.0\.0\.1/);
  t.notOk(card.includes(folder), 'no path of this machine');
  t.ok(
    hub.log.filter(line => line.includes('store')).every(line => !line.includes('+token')),
    'the token stays with the hub',
  );
  await push(run, 'org/pushed', options);
  t.equal(filesOf('org/pushed').size, files.size, 'again, over what is there');
});

t.test('an adapter is pushed as PEFT has it, and refusals say what to do', async t => {
  const warnings: string[] = [];
  const progress = { ...silentProgress, warn: (text: string) => warnings.push(text) };
  const adapter = join(golden, 'lora');
  await push(adapter, 'org/adapter', { env, progress });
  t.same([...filesOf('org/adapter').keys()].sort(), [
    'README.md',
    'adapter_config.json',
    'adapter_model.safetensors',
  ]);
  t.match(
    filesOf('org/adapter').get('README.md')!.toString(),
    /library_name: peft[\s\S]*AutoPeftModelForCausalLM/,
  );
  await t.rejects(push(adapter, 'nowhere', options), /push goes to organization\/name, got nowhere/);
  await t.rejects(push(adapter, 'org/a', { ...options, env: { ...env, HF_TOKEN: '' } }), /needs a token/);
  await t.rejects(
    push(join(folder, 'none'), 'org/a', { ...options, env: { ...env, HF_TOKEN: '' } }),
    /needs a token/,
    'the token is asked for first',
  );
  await t.rejects(push(adapter, 'org/a', { ...options, env: { ...env, HF_TOKEN: 'hf_no' } }), /no access/);
  await t.rejects(push(join(folder, 'none'), 'org/a', options), /is neither a run/);
});

t.test('a hub with replies of any length is refused by name', async t => {
  const bomb = gzipSync(Buffer.alloc(40 * 2 ** 20, ' '));
  for (const wrong of ['create', 'preupload']) {
    const { url } = await serveHttp(t, (request, response) => {
      const large = request.url!.includes(wrong);
      response.setHeader('content-type', 'application/json');
      if (!large) response.end('{}');
      else if (wrong === 'create') response.end(Buffer.alloc(40 * 2 ** 20, ' '));
      else response.writeHead(200, { 'content-encoding': 'gzip' }).end(bomb);
    });
    const pushed = push(join(golden, 'lora'), 'org/a', { ...options, env: { ...env, HF_ENDPOINT: url } });
    await t.rejects(
      pushed,
      { message: `${url}, org/a: the body has more than ${32 * 2 ** 20} bytes` },
      wrong,
    );
  }
});
