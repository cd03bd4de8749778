import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { parse } from 'yaml';
import type { AnyEnvironment } from '../../../env-server/environments/core/environment.ts';
import { frozenLake } from '../../../env-server/environments/frozenlake/frozenlake.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { tinySettings } from '../../training/runs.test-data.ts';
import { dryRun, supervise, train } from './train.ts';

const never = new AbortController().signal;
const head = 17;
const layer = 4 * 16 * 16 + 3 * 16 + 3 * 16 * 32 + 2 * 16;

t.test('settings as YAML, and sizes with the vocabulary of the environments', async t => {
  const [server] = (await serve(t)).servers;
  const settings = tinySettings(server.name, t.testdir(), 'tiny');
  const text = await dryRun(settings, never);
  t.same(parse(text), settings);
  const [, parameters, words] = /# policy: (\d+) parameters .* from scratch, (\d+) tokens/
    .exec(text)!
    .map(Number);
  t.ok(words > 10);
  t.equal(parameters, words * 16 + layer + 16 + head);
  t.match(text, '# episodes: 16 an iteration, 32 in 2 iterations');
});

t.test('without a server the vocabulary is left open, and a folder needs none', async t => {
  const settings = tinySettings('http://127.0.0.1:1', t.testdir(), 'tiny');
  t.match(await dryRun(settings, never), /with one word, and 16 for each other: .* no server answered/);
  const init = new URL('../../../test/golden/models/qwen2-tiny', import.meta.url).pathname;
  const folder = { ...settings, policy: { ...settings.policy, init } };
  const text = await dryRun(folder, never);
  t.match(text, new RegExp(`from ${init}`));
  t.match(text, '# first prompts: not checked against the context, as no server answered');
  const lora = {
    rank: 2,
    alpha: 4,
    rank_stabilized: false,
    use_dora: false,
    target_modules: ['q_proj' as const],
    dropout: 0,
    quantization: null,
  };
  const adapted = { ...folder, policy: { ...folder.policy, lora } };
  t.match(await dryRun(adapted, never), /# learned: \d+ of them \(.*\), adapters and value head/);
});

t.test('the first prompt of a tag is measured, and refused where the context cannot hold it', async t => {
  const [server] = (await serve(t)).servers;
  const init = new URL('../../../test/golden/models/qwen2-tiny', import.meta.url).pathname;
  const dry = (context: number) =>
    dryRun(
      tinySettings(server.name, t.testdir(), 'tiny', {
        policy: { init, context },
        rollout: { prompt: 'chat' },
        loss: { entropy_coefficient: 0 },
      }),
      never,
    );
  const line = /# first prompt of Lake: (\d+) of 1000 tokens, with room for 6 of a response/;
  const length = Number(line.exec(await dry(1000))?.[1]);
  t.ok(length > 100);
  t.match(await dry(length + 2), 'tokens, with room for 2 of the 6 of a response');
  await t.rejects(dry(length), {
    message: `tags.Lake: the prompt of turn 1 has ${length} tokens, the policy's context holds ${length}: raise policy.context`,
  });
});

t.test('a reset that fails at times is tried again; one that always fails is shown', async t => {
  for (const fit_context of [false, true]) {
    for (const failures of [2, Number.POSITIVE_INFINITY]) {
      let resets = 0;
      const failing = {
        ...frozenLake,
        spec: { ...frozenLake.spec, id: 'test/Thin-v0' },
        reset: (...given: Parameters<typeof frozenLake.reset>) => {
          if (++resets <= failures) throw new Error('the ice is thin');
          return frozenLake.reset(...given);
        },
      } as unknown as AnyEnvironment;
      const [server] = (await serve(t, {}, [failing])).servers;
      const settings = tinySettings(server.name, t.testdir(), 'tiny', {
        tags: { Lake: { env_id: 'test/Thin-v0' } },
        policy: { fit_context },
      });
      if (failures > 2) await t.rejects(dryRun(settings, never), /the ice is thin/);
      else t.match(await dryRun(settings, never), /# first prompt of Lake: \d+ of \d+ tokens/);
      t.equal(resets, failures > 2 ? 5 : fit_context ? 4 : 3);
    }
  }
});

t.test('a model with files that do not fit is refused before anything is loaded', async t => {
  const golden = new URL('../../../test/golden/models/qwen2-tiny', import.meta.url).pathname;
  const copy = (change: (folder: string) => void): string => {
    const folder = t.testdir();
    cpSync(golden, folder, { recursive: true });
    change(folder);
    return folder;
  };
  const settings = tinySettings('http://127.0.0.1:1', join(t.testdirName, 'runs'), 'tiny');
  const dry = (init: string, over: object = {}, rollout: object = {}) =>
    dryRun(
      {
        ...settings,
        policy: { ...settings.policy, init, ...over },
        rollout: { ...settings.rollout, ...rollout },
      },
      never,
    );
  await t.rejects(dry(golden, { context: 100_000 }), {
    message: /policy\.context 100000 is more than the \d+ positions of /,
  });
  const config = (change: object) =>
    copy(folder => {
      const file = join(folder, 'config.json');
      writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, 'utf8')), ...change }));
    });
  await t.rejects(dry(config({ vocab_size: 100 })), {
    message: /has 512 tokens, the model 100: it is another model's/,
  });
  await t.rejects(dry(config({ intermediate_size: 7 })), {
    message: /model\.safetensors: .* has shape \[.*\], config\.json wants \[/,
  });
  await t.rejects(dry(config({ num_hidden_layers: 1, layer_types: null })), {
    message: /tensors that this architecture does not have, such as model\.layers\.1/,
  });
  const silent = copy(folder => {
    rmSync(join(folder, 'chat_template.jinja'), { force: true });
    const file = join(folder, 'tokenizer_config.json');
    const { chat_template: _template, ...rest } = JSON.parse(readFileSync(file, 'utf8'));
    writeFileSync(file, JSON.stringify(rest));
  });
  await t.rejects(dry(silent, {}, { prompt: 'chat' }), {
    message: /has no chat template: add chat_template\.jinja/,
  });
  const mute = copy(folder => rmSync(join(folder, 'tokenizer.json')));
  const missing = { message: /has no tokenizer\.json: copy the tokenizer's files of the model there/ };
  await t.rejects(dry(mute), missing);
  t.match(await dry(golden, {}, { prompt: 'chat' }), /# policy: \d+ parameters/);
  const runs = join(t.testdirName, 'runs');
  const unreachable = ['servers=[{url: "http://127.0.0.1:1"}]', `run.folder=${runs}`];
  const bandit = new URL('../../../configs/bandit-nano.yaml', import.meta.url).pathname;
  await t.rejects(train(bandit, [`policy.init=${mute}`, ...unreachable], { quiet: true }), missing);
  t.notOk(existsSync(runs), 'nobody waited for a server, and there is no run folder');
});

t.test('files of conversations that do not exist are refused before a server is awaited', async t => {
  const nowhere = ['servers=[http://127.0.0.1:9]', 'rollout.server_patience_s=1'];
  for (const dryRun of [false, true]) {
    await t.rejects(
      supervise('configs/quickstart.yaml', nowhere, { data: ['none.jsonl'], quiet: true, dryRun }),
      /^none\.jsonl does not exist; warm_start\.files names JSON Lines files$/,
    );
  }
});
