import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { Type } from 'typebox';
import { stringify } from 'yaml';
import { documentedEnvironment } from '../../docs/documented-environments.ts';
import type {
  AnyEnvironment,
  Description,
  Environment,
} from '../../env-server/environments/core/environment.ts';
import type { Json } from '../../shared/json.ts';
import { evaluate } from '../commands/evaluate/evaluate.ts';
import { train } from '../commands/train/train.ts';
import { lacksSmollm2, SMOLLM2 } from '../models/gguf/gguf.test-data.ts';
import { loadTokenizer } from '../models/tokenizer/load.ts';
import type { Agent } from '../rollout/agents/agent.ts';
import { NO_SAMPLING } from '../rollout/episode-agent.ts';
import { serve } from '../rollout/server.test-data.ts';
import { planGroups } from '../rollout/tag.ts';
import { goldenFolder } from '../serve/serve.test-data.ts';
import { type Progress, silentProgress } from '../tracking/progress.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import { openRunFolder } from './run-folder/run-folder.ts';
import { MAX_MS, tinySettings, trainInTwo, trainingRows, trainTiny, weightsOf } from './runs.test-data.ts';
import { openRunContext } from './setup/run-context.ts';

const never = new AbortController().signal;
const COLORS = ['red', 'green', 'blue'];

/** Free text without a reference player: say the color that is shown. */
const ECHO: Environment<{ readonly max_steps: number }, { readonly color: string }> = {
  spec: {
    id: 'Echo-v0',
    title: 'Echo',
    description: 'For tests.',
    tags: ['test'],
    configSchema: Type.Object({ max_steps: Type.Integer({ default: 2 }) }, { additionalProperties: false }),
    optionsSchema: Type.Object({}, { additionalProperties: false }),
    observationSpace: { type: 'Text', maxLength: 20 },
    actionSpace: { type: 'Text', maxLength: 20 },
    observationFormats: ['text'],
    rewardRange: [0, 1],
    maxEpisodeSteps: 2,
    exampleAction: 'red',
    history: [{ version: 0, change: 'First.' }],
  },
  describe: () => ({ instruction: 'Say the color.', vocabulary: COLORS }),
  reset: (_config, rng) => ({ color: rng.choice(COLORS) }),
  step: (state, action) => {
    const success = action === state.color;
    const info = { success, action_is_valid: COLORS.includes(action as string), action_is_effective: false };
    return { state, reward: success ? 1 : 0, terminated: success, info };
  },
  observe: ({ color }) => color,
};

/** The same with other descriptions. */
const echoOf = (description: Partial<Description>, more: Partial<AnyEnvironment> = {}): AnyEnvironment => ({
  ...(ECHO as unknown as AnyEnvironment),
  describe: () => ({ instruction: 'Say the color.', actionFormat: 'a color', ...description }),
  ...more,
});

const echo = {
  tags: { Echo: { env_id: 'Echo-v0', max_turn: 2, max_actions_per_turn: 1 } },
  train_tags: ['Echo'],
  training: { steps: 1, validate_every: 1 },
};

async function urlOf(t: Test, environment: AnyEnvironment): Promise<string> {
  return (await serve(t, {}, [environment])).servers[0].name;
}

/** Progress that keeps what it says. */
function listening(): { readonly progress: Progress; readonly said: string[] } {
  const said: string[] = [];
  const say = (text: string) => said.push(text);
  return { progress: { ...silentProgress, note: say, warn: say }, said };
}

t.test(
  'an environment without a reference player trains, and its validation levels can be left out',
  async t => {
    const url = await urlOf(t, ECHO as unknown as AnyEnvironment);
    const over = { ...echo, validation: { episodes: 1, unseen_levels: true } };
    const run = await trainTiny(tinySettings(url, t.testdir(), 'echo', over));
    t.equal(trainingRows(run).length, 1);
    t.equal(latestCheckpoint(run)!.state.validationLevels.length, 1, 'known from the first state alone');
  },
);

t.test(
  'free text is learned from bytes: warm start, checkpoints, resume and other players',
  { timeout: MAX_MS },
  async t => {
    const url = await urlOf(t, echoOf({ exampleActions: COLORS }));
    const { progress, said } = listening();
    const over = {
      ...echo,
      training: { steps: 2, validate_every: 2, checkpoint_every: 1 },
      rollout: { constrained: true },
      warm_start: { episodes: 16, epochs: 1 },
    };
    const folder = t.testdir();
    const settings = tinySettings(url, folder, 'bytes', over);
    const run = await trainTiny(settings, progress);
    t.ok(
      said.some(text => /Echo-v0 has no fixed vocabulary, so the policy reads and writes bytes/.test(text)),
    );
    const { policy } = latestCheckpoint(run)!;
    const tokenizer = await loadTokenizer(policy);
    t.equal(tokenizer.constructor.name, 'ByteTokenizer');
    t.equal(tokenizer.decode(tokenizer.encode('Any täxt ☃')), 'Any täxt ☃');
    t.same(tokenizer.encode('green').length, 1, 'an action that the environment names');
    const twice = await trainInTwo(tinySettings(url, folder, 'resumed', over), 1);
    t.ok(weightsOf(twice).equals(weightsOf(run)), 'a resumed run reads the same tokens');
    t.capture(console, 'log');
    const output = join(folder, 'out');
    t.equal(await evaluate(run.path, [], { policy: ['checkpoint', 'random'], output, quiet: true }), 0);
  },
);

t.test('JSON actions: text that is not an action is an invalid turn, and the run trains', async t => {
  const url = await urlOf(
    t,
    echoOf(
      { exampleActions: [[0.5], [-0.25]] },
      {
        spec: {
          ...(ECHO.spec as unknown as AnyEnvironment['spec']),
          actionSpace: {
            type: 'Json',
            schema: {
              type: 'array',
              items: { type: 'number', minimum: -1, maximum: 1 },
              minItems: 1,
              maxItems: 1,
            },
          },
          exampleAction: [0.5],
        } as AnyEnvironment['spec'],
        step: (state, action) => {
          const success = (action as number[])[0] > 0;
          const info = { success, action_is_valid: true, action_is_effective: true };
          return { state, reward: success ? 1 : 0, terminated: success, info };
        },
      },
    ),
  );
  const over = { ...echo, rollout: { constrained: false, response_length: 8 } };
  const run = await trainTiny(tinySettings(url, t.testdir(), 'json', over));
  const [row] = trainingRows(run);
  t.ok(Object.entries(row).some(([name, value]) => name.includes('invalid_action') && (value as number) > 0));
});

t.test('JSON actions are drawn from their schema at random, and constrained responses fit it', async t => {
  const schema = {
    type: 'object',
    properties: { color: { enum: COLORS }, times: { type: 'integer', minimum: 0, maximum: 2 } },
    required: ['color', 'times'],
    additionalProperties: false,
  };
  const spec = {
    ...(ECHO.spec as unknown as AnyEnvironment['spec']),
    exampleAction: { color: 'red', times: 1 },
  };
  const step: AnyEnvironment['step'] = (state, action) => {
    const success =
      (action as { readonly color: string }).color === (state as { readonly color: string }).color;
    const info = { success, action_is_valid: true, action_is_effective: true };
    return { state, reward: success ? 1 : 0, terminated: success, info };
  };
  const of = (given: object) =>
    urlOf(
      t,
      echoOf({}, { spec: { ...spec, actionSpace: { type: 'Json', schema: given } } as typeof spec, step }),
    );
  const folder = t.testdir();
  const over = {
    ...echo,
    rollout: { constrained: true, response_length: 40 },
    warm_start: { episodes: 8, epochs: 1 },
  };
  const run = await trainTiny(tinySettings(await of(schema), folder, 'schema', over));
  const [row] = trainingRows(run);
  const invalid = Object.entries(row).filter(([name]) => name.includes('invalid_action'));
  t.ok(invalid.length > 0 && invalid.every(([, value]) => value === 0), 'every response is an action');
  t.capture(console, 'log');
  const output = join(folder, 'out');
  t.equal(await evaluate(run.path, [], { policy: ['random'], output, quiet: true }), 0);
  const open = { ...schema, properties: { ...schema.properties, note: { type: 'string', pattern: 'red' } } };
  await t.rejects(
    trainTiny(tinySettings(await of(open), folder, 'open', over)),
    /responses under Echo have no grammar: the schema of its actions makes none: .*must begin with \^/,
  );
});

t.test(
  'policy.tokenizer chooses words, bytes, or the tokens of other people',
  { timeout: MAX_MS },
  async t => {
    const url = await urlOf(t, ECHO as unknown as AnyEnvironment);
    const open = async (tokenizer: string | null) => {
      const settings = tinySettings(url, 'unused', 'x', { ...echo, policy: { tokenizer } });
      const context = await openRunContext(settings, undefined, () => {}, never);
      await context.close();
      return context.tokenizer;
    };
    t.equal((await open(null)).constructor.name, 'WordTokenizer', 'all environments have a vocabulary');
    t.equal((await open('bytes')).constructor.name, 'ByteTokenizer');
    const golden = goldenFolder('qwen2-tiny');
    const own = await open(join(golden, 'tokenizer.json'));
    t.same((await open(golden)).files, own.files, 'a file or its folder');
    t.equal(own.encode('</answer>').length, 1);
    t.same(own.encode('hello'), (await loadTokenizer(golden)).encode('hello'));
    await t.rejects(open('nowhere'), /policy\.tokenizer: nowhere has no tokenizer\.json.*words, bytes/);
    const free = await urlOf(t, echoOf({}));
    const words = tinySettings(free, 'unused', 'x', { ...echo, policy: { tokenizer: 'words' } });
    await t.rejects(
      openRunContext(words, undefined, () => {}, never),
      /Echo-v0 has no fixed vocabulary/,
    );
  },
);

t.test('a warm start at random needs actions to draw from', async t => {
  const url = await urlOf(t, echoOf({}));
  const settings = tinySettings(url, t.testdir(), 'x', { ...echo, warm_start: { episodes: 4, epochs: 1 } });
  await t.rejects(
    trainTiny(settings),
    /warm_start\.policy: Echo-v0 names no actions to play at random; add `actions`/,
  );
  const output = join(t.testdir(), 'out');
  const config = join(t.testdir({}), 'config.yaml');
  writeFileSync(config, stringify(settings));
  await t.rejects(
    evaluate(config, [], { policy: ['random'], output, quiet: true }),
    /--policy random: Echo-v0 names no actions/,
  );
});

t.test(
  'bytes that are no text reach the environment as replacement characters and are trained as sampled',
  async t => {
    const actions: Json[] = [];
    const environment = echoOf(
      {},
      {
        step: (state, action) => {
          actions.push(action);
          return {
            state,
            reward: 0,
            terminated: true,
            info: { success: false, action_is_valid: false, action_is_effective: false },
          };
        },
      },
    );
    const settings = tinySettings(await urlOf(t, environment), 'unused', 'x', echo);
    const context = await openRunContext(settings, undefined, () => {}, never);
    t.teardown(() => context.close());
    const sampled = [0xe2, 0x98, 97, context.tokenizer.idOf('</answer>')!];
    const agent: Agent = {
      respond: async () => ({ tokenIds: Int32Array.from(sampled), finishReason: 'stop' }),
      release() {},
    };
    const plans = planGroups({ tags: [{ tag: 'Echo', groups: 1 }], groupSize: 1, firstSeed: 1 });
    const { episodes } = await context.collector.collect(plans, {
      agent,
      sampling: NO_SAMPLING,
      samplingSeed: 1,
    });
    t.same(actions, ['\ufffda']);
    const [{ tokenIds, lossMask }] = episodes;
    t.same(
      [...tokenIds].filter((_, i) => lossMask[i] === 1),
      sampled,
    );
  },
);

t.test('actions that are JSON are written as text, and read back', async t => {
  const actions: Json[] = [];
  const examples = [{ say: 'red' }, { say: 'blue' }];
  const environment = echoOf(
    { exampleActions: examples },
    {
      spec: {
        ...ECHO.spec,
        actionSpace: { type: 'Json', schema: { type: 'object' } },
        exampleAction: { say: 'red' },
      },
      step: (state, action) => {
        actions.push(action);
        return {
          state,
          reward: 0,
          terminated: true,
          info: { success: false, action_is_valid: true, action_is_effective: true },
        };
      },
    },
  );
  const over = {
    ...echo,
    rollout: { response_length: 16, constrained: true },
    training: { steps: 1, validate_every: 9 },
  };
  await trainTiny(tinySettings(await urlOf(t, environment), t.testdir(), 'json', over));
  t.equal(actions.length, 16 + 4);
  for (const action of actions) t.ok(examples.some(({ say }) => (action as { say?: string }).say === say));
});

t.test(
  'the recipe chat trains a chat model on any environment, over any config',
  { timeout: MAX_MS },
  async t => {
    const url = await urlOf(t, echoOf({}));
    const folder = t.testdir();
    t.capture(console, 'log');
    const settings = [
      'recipe=chat',
      `policy.init=${goldenFolder('qwen2-tiny')}`,
      `servers=[{url: "${url}"}]`,
      'tags.Echo={env_id: Echo-v0, max_turn: 2, max_actions_per_turn: 1}',
      'train_tags=[Echo]',
      ...['training.steps=1', 'training.validate_first=false', 'validation.episodes=2'],
      ...['rollout.env_groups=1', 'rollout.group_size=2', 'algorithm.mini_batch_size=2', 'policy.workers=1'],
    ];
    const config = new URL('../../configs/quickstart.yaml', import.meta.url).pathname;
    const place = [`run.folder=${folder}`, 'run.name=chat'];
    t.equal(await train(config, [...settings, ...place], { quiet: true }), 0);
    const { run, settings: kept } = openRunFolder(join(folder, 'chat'));
    const { context, fit_context } = kept.policy;
    t.equal(fit_context, false, 'the run keeps the context that it found');
    t.ok(context < 1024 && context > 2 * kept.rollout.response_length, `${context} of the 1024 positions`);
    t.equal(latestCheckpoint(run)!.state.step, 1);
    const short = [...settings, `run.folder=${folder}`, 'policy.context=40'];
    await t.rejects(
      train(config, [...short, 'rollout.response_length=16'], { quiet: true }),
      /tags\.Echo: the prompt of turn 1 has \d+ tokens, the policy's context holds 40/,
    );
  },
);

t.test('a chat model with constrained answers takes listed actions alone', { timeout: MAX_MS }, async t => {
  const taken: Json[] = [];
  const environment = echoOf(
    { exampleActions: COLORS },
    {
      step: (state, action, rng) => {
        taken.push(action as Json);
        return ECHO.step(state as never, action, rng) as never;
      },
    },
  );
  const url = await urlOf(t, environment);
  t.capture(console, 'log');
  const settings = [
    ...['recipe=chat', `policy.init=${goldenFolder('qwen2-tiny')}`, `servers=[{url: "${url}"}]`],
    ...['tags.Echo={env_id: Echo-v0, max_turn: 2, max_actions_per_turn: 1}', 'train_tags=[Echo]'],
    ...['training.steps=1', 'training.validate_first=false', 'validation.episodes=2', 'policy.workers=1'],
    ...[
      'rollout.env_groups=2',
      'rollout.group_size=4',
      'algorithm.mini_batch_size=8',
      'rollout.constrained=true',
    ],
    ...[`run.folder=${t.testdir()}`, 'run.name=constrained'],
  ];
  const config = new URL('../../configs/quickstart.yaml', import.meta.url).pathname;
  t.equal(await train(config, settings, { quiet: true }), 0);
  t.ok(taken.length >= 10, `${taken.length} actions`);
  for (const action of taken) t.ok(COLORS.includes(action as string), String(action));
});

t.test(
  'the recipe chat trains SmolLM2 on me/Guess-v0 for an iteration',
  { skip: lacksSmollm2, timeout: MAX_MS },
  async t => {
    const url = (await serve(t)).servers[0].name;
    const { env_id, definition } = documentedEnvironment('me/Guess-v0');
    const body = JSON.stringify({ env_id, definition });
    const headers = { 'content-type': 'application/json' };
    t.equal((await fetch(`${url}/v1/envs`, { method: 'POST', headers, body })).status, 201);
    t.capture(console, 'log');
    const settings = [
      ...['recipe=[chat,lora]', `policy.init=${SMOLLM2}`, `servers=[{url: "${url}"}]`],
      ...['tags.Guess={env_id: me/Guess-v0, max_turn: 2, max_actions_per_turn: 1}', 'train_tags=[Guess]'],
      ...['training.steps=1', 'training.validate_first=false', 'validation.episodes=2', 'policy.workers=1'],
      ...[
        'rollout.env_groups=1',
        'rollout.group_size=4',
        'algorithm.mini_batch_size=4',
        'rollout.constrained=true',
      ],
      ...['optimizer.learning_rate=1e-4', `run.folder=${t.testdir()}`, 'run.name=smollm2'],
    ];
    const config = new URL('../../configs/quickstart.yaml', import.meta.url).pathname;
    t.equal(await train(config, settings, { quiet: true }), 0);
    const { run } = openRunFolder(join(t.testdirName, 'smollm2'));
    t.equal(latestCheckpoint(run)!.state.step, 1);
    const [row] = trainingRows(run);
    t.equal(row['train/Guess/action_is_valid'], 1);
  },
);
