import { cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { Type } from 'typebox';
import type { AnyEnvironment } from '../../../env-server/environments/core/environment.ts';
import { type Space, text } from '../../../env-server/environments/core/spaces.ts';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { EnvServer } from '../../client/server.ts';
import { loadRunSettings } from '../../config/load.ts';
import { loadTokenizer } from '../../models/tokenizer/load.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { silentProgress } from '../../tracking/progress.ts';
import { latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { resumeTiny, trainingRows, trainTiny } from '../../training/runs.test-data.ts';
import { evaluate } from '../evaluate/evaluate.ts';
import { chooseSettings, mostOf } from './choices.ts';
import { init } from './init.ts';
import { type Survey, surveyEnvironment } from './survey.ts';
import { warningsOf } from './warnings.ts';

t.setTimeout(900_000);

const closed = Type.Object({}, { additionalProperties: false });

interface Shape {
  readonly words?: boolean;
  readonly observation?: string;
  readonly actionSpace?: AnyEnvironment['spec']['actionSpace'];
  readonly maxEpisodeSteps?: number;
  /** Steps after which an episode succeeds; 0: never. */
  readonly wins?: number;
  readonly random?: boolean;
  /** States list both actions as valid, or two of their JSON actions. */
  readonly lists?: boolean | 'json';
  readonly fails?: boolean;
  /** Every such reset fails, counted from 1. */
  readonly failingReset?: number;
}

/** An environment that counts steps and pays for the action `yes`. */
function environment(id: string, shape: Shape = {}): AnyEnvironment {
  const { words = true, observation = 'say', maxEpisodeSteps = 4, wins = 3, random = true, fails } = shape;
  const { actionSpace = { type: 'Discrete', n: 2, names: ['yes', 'no'] } } = shape;
  const named = actionSpace.type === 'Discrete';
  let resets = 0;
  return {
    spec: {
      id,
      title: id,
      description: 'For tests.',
      tags: [],
      configSchema: Type.Object({ pay: Type.Number({ default: 1 }) }, { additionalProperties: false }),
      optionsSchema: closed,
      observationSpace: text(100_000),
      actionSpace,
      observationFormats: ['text'],
      rewardRange: [0, 10],
      maxEpisodeSteps,
      exampleAction: named ? 'yes' : actionSpace.type === 'Text' ? 'yes' : { a: 1 },
      history: [{ version: 0, change: 'First version.' }],
    },
    describe: () => ({
      instruction: 'Say yes.',
      ...(named ? { actions: ['yes', 'no'] } : {}),
      ...(words ? { vocabulary: [observation, 'yes', 'no'] } : {}),
    }),
    reset(config: JsonObject) {
      if (++resets % (shape.failingReset ?? Number.POSITIVE_INFINITY) === 0)
        throw new Error('nobody is home');
      return { steps: 0, pay: config.pay };
    },
    step(state: JsonObject, action: Json) {
      if (fails) throw new Error('the dice are lost');
      const steps = (state.steps as number) + 1;
      const right = action === 'yes' || action === 0;
      const terminated = wins > 0 && steps === wins;
      const info = { success: terminated && right, action_is_valid: true, action_is_effective: true };
      return { state: { ...state, steps }, reward: right ? (state.pay as number) : 0, terminated, info };
    },
    observe: () => observation,
    ...(shape.lists
      ? { validActions: () => (shape.lists === 'json' ? [{ say: 'yes' }, 'yes'] : ['yes', 'say no']) }
      : {}),
    references: random
      ? {
          random: {
            title: 'Either',
            plan: (_state: Json, _count: number, rng) => [rng.choice(['yes', 'no'])],
          },
        }
      : {},
  } as AnyEnvironment;
}

/** The address of a server with these environments. */
async function served(t: Test, ...environments: AnyEnvironment[]): Promise<string> {
  const [server] = (await serve(t, {}, environments)).servers;
  return server.name;
}

/** The output of the command, and the file that it writes. */
async function initialized(t: Test, url: string, envId: string, ...settings: string[]) {
  const out = join(t.testdir(), 'made.yaml');
  const printed = t.capture(console, 'log');
  t.equal(await init(envId, settings, { servers: url, out }), 0);
  printed.restore();
  const lines = printed().map(({ args }) => String(args[0]));
  return { out, text: readFileSync(out, 'utf8'), printed: lines.join('\n') };
}

t.test('an environment becomes a config with a reason for each choice, and the score to beat', async t => {
  const url = await served(t, environment('Yes-v0'));
  const { out, text, printed } = await initialized(t, url, 'Yes-v0', 'pay=2');
  const settings = loadRunSettings(out);
  t.match(settings, {
    servers: [{ url }],
    train_tags: ['Yes'],
    tags: { Yes: { env_id: 'Yes-v0', config: { pay: 2 }, max_turn: 4, max_actions_per_turn: 1 } },
    rollout: { prompt: 'compact', constrained: true, response_length: 3, env_groups: 128, group_size: 1 },
    warm_start: { policy: 'random', episodes: 600 },
    algorithm: { reward_scale: 1 },
  });
  const success = settings.tags.Yes.random_success!;
  t.ok(success > 0.2 && success < 0.8, `random play succeeds in ${success}`);
  // A turn: how many actions are left, the kind of state, the state, the prime, and a mark after an invalid answer.
  t.equal(settings.policy.context, 4 * (5 + 3));
  for (const key of ['max_turn', 'context', 'response_length', 'env_groups', 'learning_rate', 'steps']) {
    t.match(text, new RegExp(`^ +${key}: \\S+ # \\w`, 'm'), `${key} has a reason`);
  }
  t.match(printed, /rewards of a step from 0 to 10/);
  t.match(printed, /Random play succeeds in \d+ % of 64 episodes, with a return of \d\.\d+ in 3 steps\./);
  t.match(printed, /iterations of about \d.* on this machine/);
  t.match(printed, new RegExp(`Success to beat: ${(100 * success).toFixed(0)} %`));
  t.match(printed, /npm run trainer -- train .*made\.yaml\n/);
});

t.test('episodes that are too long to read as a whole are shown one observation at a time', async t => {
  const long = { words: false, observation: 'y'.repeat(60) };
  const url = await served(
    t,
    environment('Short-v0', { ...long, maxEpisodeSteps: 3 }),
    environment('Long-v0', { ...long, maxEpisodeSteps: 8 }),
  );
  const whole = loadRunSettings((await initialized(t, url, 'Short-v0')).out);
  t.match(whole, { rollout: { context_mode: 'full' }, algorithm: { gamma: 0.9, bootstrap: 'none' } });
  const { out, text, printed } = await initialized(t, url, 'Long-v0');
  const turns = loadRunSettings(out);
  t.match(turns.rollout, { context_mode: 'single_turn', max_context_window: 1 });
  t.match(
    [whole, turns].map(({ algorithm }) => algorithm.across_samples),
    [false, true],
    'each turn its own reward',
  );
  const response = whole.rollout.response_length;
  const turn = whole.policy.context / 3 - response;
  t.equal(turns.policy.context, Math.ceil(1.25 * turn) + response, 'room for one turn and its response');
  t.match(text, /max_context_window: 1 # a whole episode may have \d+ tokens; up to 256 /);
  t.match(printed, /iterations of about/, 'and part of an iteration was tried out');
});

t.test('observations that only answer the last action are shown with all earlier ones', async t => {
  const asked = {
    ...environment('Ask-v0', { words: false, maxEpisodeSteps: 8, wins: 8 }),
    observe: ({ steps }: JsonObject) =>
      steps === 0 ? 'Say the word of consent at every question.' : `Heard, that makes number ${steps}.`,
  };
  const { out, text } = await initialized(t, await served(t, asked), 'Ask-v0');
  const { rollout, policy, algorithm } = loadRunSettings(out);
  t.match(rollout, { context_mode: 'full', max_context_window: 0 });
  t.ok(policy.context > 300, `${policy.context} tokens`);
  t.notOk(algorithm.across_samples);
  t.match(text, /context: \d+ # .* each response; observations do not repeat what the first one says\n/);
});

t.test('a list of texts without any that succeeds is named as the fault', async t => {
  const listed = (id: string, actions: readonly string[]): AnyEnvironment => {
    const plain = environment(id, { words: false, actionSpace: { type: 'Text', maxLength: 9 } });
    return { ...plain, describe: () => ({ instruction: 'Say yes.', exampleActions: actions }) };
  };
  const url = await served(t, listed('One-v0', ['no']), listed('Two-v0', ['no', 'never']));
  t.match(
    (await initialized(t, url, 'One-v0')).printed,
    /It lists one action, and the policy can say nothing else/,
  );
  const { printed } = await initialized(t, url, 'Two-v0');
  t.match(printed, /None of its 2 listed actions led to success/);
  t.match(printed, /Give demonstrations \(`--demonstrations FILE`/);
});

t.test('JSON actions that no list has are drawn from their schema, and answers are held to it', async t => {
  const json = (times: JsonObject): Shape => {
    const properties = { say: { enum: ['yes', 'no'] }, times };
    const schema: JsonObject = { type: 'object', properties, required: ['say'], additionalProperties: false };
    return { words: false, random: false, actionSpace: { type: 'Json', schema } };
  };
  const anyOf: readonly JsonObject[] = [{ type: 'object' }, { enum: ['yes'] }];
  const texts: Space = { type: 'Json', schema: { anyOf } };
  const url = await served(
    t,
    environment('Call-v0', json({ type: 'integer', minimum: 1, maximum: 3 })),
    environment('Part-v0', json({ type: 'number', minimum: 0 })),
    environment('Listed-v0', {
      ...{ words: false, random: false, actionSpace: texts, lists: 'json' },
    }),
  );
  const listed = await initialized(t, url, 'Listed-v0');
  t.match(listed.text, / constrained: true # every response is a valid action of its state\n/);
  t.ok(loadRunSettings(listed.out).tags.Listed.random_success! > 0.2, 'a text of the list is played as one');
  t.match(loadRunSettings(listed.out), { warm_start: null, tags: { Listed: { number_span: null } } });
  const { out, printed } = await initialized(t, url, 'Call-v0');
  const longest = '{"say":"yes","times":3}</answer>';
  t.match(loadRunSettings(out), { rollout: { constrained: true }, warm_start: { policy: 'random' } });
  t.ok(
    loadRunSettings(out).rollout.response_length <= longest.length,
    'room for the longest answer, no more',
  );
  t.match(printed, /Random play succeeds in/);
  const server = new EnvServer({ url });
  t.teardown(() => server.close());
  const survey = await surveyEnvironment(server, await server.describe('Part-v0', {}), {});
  t.equal(survey.player, 'drawn');
  t.ok(survey.actions.every(action => ['yes', 'no'].includes(JSON.parse(action).say)));
  const lengths = { turn: 9, response: 9, schema: { fault: 'its keyword "minimum" is not supported' } };
  t.match(
    warningsOf(survey, lengths)[0],
    /not held to the schema of its actions, as its keyword "minimum" is/,
  );
  t.notOk(chooseSettings(survey, lengths).constrained);
  t.equal(chooseSettings(survey, lengths).numberSpan?.value, 999);
  t.match(warningsOf(survey).join(), /numbers without a bound.* up to 999 .*number_span in the file/);
});

t.test('answers are held to listed JSON actions where these are all that the schema allows', async t => {
  const schema: JsonObject = { type: 'array', items: { enum: [0, 1] }, minItems: 2, maxItems: 2 };
  const listed = (id: string, exampleActions: readonly Json[]): AnyEnvironment => ({
    ...environment(id, { words: false, actionSpace: { type: 'Json', schema } }),
    describe: () => ({ instruction: 'Say yes.', exampleActions }),
  });
  const all: readonly Json[] = [0, 1].flatMap(a => [0, 1].map(b => [a, b]));
  const server = new EnvServer({
    url: await served(t, listed('All-v0', all), listed('Some-v0', all.slice(1))),
  });
  t.teardown(() => server.close());
  for (const [id, held] of [
    ['All-v0', true],
    ['Some-v0', undefined],
  ] as const) {
    const survey = await surveyEnvironment(server, await server.describe(id, {}), {});
    t.equal(survey.player, 'examples');
    t.equal(chooseSettings(survey, { turn: 9, response: 6 }).constrained?.value, held, id);
  }
});

t.test('a demonstration may write the keys of a listed JSON action in another order', async t => {
  const properties = { a: { enum: [0, 1] }, b: { enum: [0] } };
  const schema: JsonObject = { type: 'object', properties, required: ['a', 'b'] };
  const listed: AnyEnvironment = {
    ...environment('Keys-v0', { words: false, actionSpace: { type: 'Json', schema } }),
    describe: () => ({
      instruction: 'Say yes.',
      exampleActions: [
        { b: 0, a: 0 },
        { b: 0, a: 1 },
      ],
    }),
  };
  const folder = t.testdir({ 'shown.jsonl': '{"seed":1,"actions":[{"a":1,"b":0},{"a":0,"b":0}]}\n' });
  const [out, demonstrations] = ['made.yaml', 'shown.jsonl'].map(name => join(folder, name));
  const printed = t.capture(console, 'log');
  t.equal(await init('Keys-v0', [], { servers: await served(t, listed), out, demonstrations }), 0);
  printed.restore();
  t.match(loadRunSettings(out), { tags: { Keys: { actions: null } }, rollout: { constrained: true } });
});

t.test('demonstrations become the list of actions and the warm start of the config', async t => {
  const url = await served(
    t,
    environment('Say-v0', { words: false, random: false, actionSpace: { type: 'Text', maxLength: 9 } }),
  );
  const folder = t.testdir();
  const demonstrations = join(folder, 'shown.jsonl');
  const lines = [
    { seed: 1, actions: ['yes', 'no', 'yes'] },
    { seed: 2, actions: ['maybe', 'yes', 'yes'] },
  ];
  const write = (values: readonly object[]) =>
    writeFileSync(demonstrations, values.map(value => `${JSON.stringify(value)}\n`).join(''));
  write(lines);
  const out = join(folder, 'made.yaml');
  const printed = t.capture(console, 'log');
  t.equal(await init('Say-v0', [], { servers: url, out, demonstrations }), 0);
  printed.restore();
  const settings = loadRunSettings(out);
  t.match(settings, {
    tags: { Say: { actions: ['yes', 'no', 'maybe'] } },
    rollout: { constrained: true },
    warm_start: { files: [demonstrations], epochs: 60 },
  });
  t.match(readFileSync(out, 'utf8'), /epochs: 60 # passes over 6 turns: /);
  const small = loadRunSettings(out, [
    'policy.hidden_size=32',
    'rollout.env_groups=4',
    'algorithm.mini_batch_size=4',
    'training.steps=1',
    'validation.episodes=4',
    `run.folder=${join(folder, 'runs')}`,
  ]);
  const run = await trainTiny(small);
  const [warm] = readJsonLines(run.metrics);
  t.match(warm, { 'sft/episodes': 2, 'sft/success': 1 });

  let refusals = 0;
  const refused = async (values: readonly object[], message: RegExp) => {
    write(values);
    await t.rejects(trainTiny({ ...small, run: { ...small.run, name: `refused-${++refusals}` } }), {
      message,
    });
  };
  await refused(
    [{ seed: 1, actions: ['yes', 'never'] }],
    /shown\.jsonl:1: "never" is no action of Say-v0; .*tags\.Say\.actions/,
  );
  await refused([...lines, { actions: ['yes'] }], /shown\.jsonl:3: `seed` is the seed of the episode/);
  await refused([...lines, { messages: [] }], /shown\.jsonl:3: a demonstration has a list of `actions`/);
  await refused([{ seed: 1, tag: 'Lake', actions: ['yes'] }], /`tag` is "Lake"; the run trains in Say/);
  await t.rejects(
    init('Say-v0', [], { servers: url, out: join(folder, 'other.yaml'), demonstrations: 'nowhere.jsonl' }),
    /--demonstrations nowhere\.jsonl: there is no such file/,
  );
});

t.test('a survey keeps some of many long observations, and the longest', async t => {
  const wordy = {
    ...environment('Wordy-v0', { words: false, maxEpisodeSteps: 20, wins: 20 }),
    observe: ({ steps }: JsonObject) => `${Math.random()}${'x'.repeat(90_000 - 10 * (steps as number))}`,
  };
  const server = new EnvServer({ url: await served(t, wordy) });
  t.teardown(() => server.close());
  const document = await server.describe('Wordy-v0', {});
  const { observations } = await surveyEnvironment(server, document, {});
  const lengths = observations.map(text => text.length);
  t.ok(lengths.length > 50 && lengths.length < 100, `${lengths.length} observations of 1,300`);
  t.ok(Math.max(...lengths) > 90_000);
});

t.test('a step that earns something is no way to wait', async t => {
  const earning = {
    ...environment('Earning-v0', { wins: 0 }),
    step: (state: JsonObject, action: Json) => ({
      state,
      reward: action === 'yes' || action === 0 ? 1 : -0.2,
      terminated: false,
      info: { success: false, action_is_valid: true, action_is_effective: true },
    }),
  } as unknown as AnyEnvironment;
  const server = new EnvServer({ url: await served(t, earning) });
  t.teardown(() => server.close());
  const survey = await surveyEnvironment(server, await server.describe('Earning-v0', {}), {});
  t.equal(survey.idleReward, -0.2);
});

t.test('of long texts a vocabulary is learned, with which runs train, resume and evaluate', async t => {
  const wordy = (id: string, lines: number): AnyEnvironment => ({
    ...environment(id, { words: false, maxEpisodeSteps: 2, wins: 2 }),
    observe: ({ steps }: JsonObject) =>
      Array.from({ length: lines }, (_, i) => `say yes at door ${i}, 漢字 👍 step ${steps}`).join('\n'),
  });
  const url = await served(t, wordy('Long-v0', 10), wordy('Brief-v0', 2));
  const brief = await initialized(t, url, 'Brief-v0');
  t.equal(loadRunSettings(brief.out).policy.tokenizer, 'bytes', 'below the threshold nothing changes');
  t.same(readdirSync(join(brief.out, '..')), ['made.yaml']);

  const { out, text } = await initialized(t, url, 'Long-v0');
  const folder = join(out, '..', 'made-tokenizer');
  const [, learned, bytes] = / tokenizer: \.\/\S+ # pairs of bytes .*: (\d+) tokens a turn instead of (\d+)\n/
    .exec(text)!
    .map(Number);
  t.ok(bytes > 300 && learned < bytes / 2, `${learned} of ${bytes}`);
  const small = [
    'warm_start=null',
    'rollout.env_groups=4',
    'algorithm.mini_batch_size=4',
    'training.steps=2',
  ];
  const settings = loadRunSettings(out, [
    ...small,
    'policy.hidden_size=32',
    'validation.episodes=4',
    'training.checkpoint_every=1',
    `run.folder=${join(out, '..', 'runs')}`,
  ]);
  t.equal(settings.policy.tokenizer, folder, 'a path that holds wherever the run is started');
  t.match(readFileSync(out, 'utf8'), '  tokenizer: ./made-tokenizer #');
  const moved = join(out, '..', 'moved');
  cpSync(out, join(moved, 'made.yaml'));
  cpSync(folder, join(moved, 'made-tokenizer'), { recursive: true });
  t.equal(loadRunSettings(join(moved, 'made.yaml')).policy.tokenizer, join(moved, 'made-tokenizer'));
  const shown = `say yes at door 5, 漢字 👍 step ${'\0'}`;
  const tokenizer = await loadTokenizer(folder);
  t.equal(tokenizer.decode(tokenizer.encode(shown)), shown);
  const stop = new AbortController();
  const half = { ...silentProgress, update: () => stop.abort(new DOMException('stop', 'AbortError')) };
  const run = await trainTiny(settings, half, stop.signal);
  rmSync(folder, { recursive: true });
  await resumeTiny(run, settings);
  t.equal(trainingRows(run).length, 2, 'resumed with the tokenizer of the checkpoint');
  t.same((await loadTokenizer(latestCheckpoint(run)!.policy)).files, tokenizer.files);
  t.capture(console, 'log');
  const output = join(out, '..', 'out');
  t.equal(await evaluate(run.path, [], { policy: ['checkpoint'], output, quiet: true }), 0);
});

t.test('the folder of a learned vocabulary is kept without --force', async t => {
  const url = await served(t, environment('Yes-v0'));
  const out = join(t.testdir({ 'mine-tokenizer': {} }), 'mine.yaml');
  await t.rejects(init('Yes-v0', [], { servers: url, out }), /mine-tokenizer is there already: .* --force/);
  t.notOk(existsSync(out));
});

/** A survey of two-step episodes. */
const listing = (part: object): Survey => {
  const episodes = [{ steps: 2, success: false, return: 1 }];
  const known = {
    document: {},
    player: 'names',
    stepLimit: 4,
    observations: ['say'],
    episodes,
    leastReward: 0,
  };
  return { ...known, ...part } as unknown as Survey;
};

t.test(
  'long observations are read by fewer episodes, and what does not fit is cut, which is said',
  async t => {
    const chosen = (player: Survey['player'], turn: number, steps: number) => {
      const episodes = [{ steps, success: false, return: 1 }];
      const survey = listing({
        player,
        episodes,
        document: { action_space: { gymnasium: { type: 'Text' } } },
      });
      const { groups, validation, warmStart, context } = chooseSettings(survey, { turn, response: 2 });
      return [groups.value, validation.value, warmStart?.value, context.value];
    };
    t.same(chosen('names', 60, 4), [128, 256, 600, 252], 'the whole episode');
    t.same(chosen('reference', 1000, 8), [64, 128, 62, 1253]);
    t.same(chosen('reference', 2000, 20), [32, 64, 16, 2503]);
    t.same(chosen('reference', 9000, 20), [32, 64, 24, 1027]);
    t.same(chosen('names', 9000, 20), [32, 64, undefined, 1027], 'no answer has to be learned');
    const wide = listing({ failed: { episodes: 0 }, observations: ['x'.repeat(1000)] });
    t.match(
      warningsOf(wide, { turn: 1004, response: 2 }).join('\n'),
      /up to 1004 tokens, which the policy reads in full: a turn takes at least 10 times/,
    );

    const shape = { words: false, maxEpisodeSteps: 1, wins: 1 };
    const observation = `head ${'x '.repeat(5000)} tail`;
    const url = await served(t, environment('Vast-v0', { ...shape, observation }));
    const vast = await initialized(t, url, 'Vast-v0');
    for (const said of [vast.printed, vast.text]) {
      t.match(
        said,
        /Note: Its observations have up to 10010 characters, \d+ tokens\. The policy reads 1024 of a turn: /,
      );
    }
    t.match(loadRunSettings(vast.out), { policy: { context: 1027 }, rollout: { env_groups: 256 } });
    t.match(vast.printed, /iterations of about/, 'and part of an iteration was tried out');
  },
);

t.test(
  'iterations of many turns have larger mini-batches, and demonstrations smaller steps after them',
  async t => {
    const chosen = (steps: number, demonstrated: readonly number[] = []) => {
      const survey = listing({ episodes: [{ steps, success: false, return: 1 }], stepLimit: steps });
      return chooseSettings(survey, { turn: 30, response: 2 }, { demonstrated });
    };
    const sizes = [4, 12, 24, 64].map(steps => chosen(steps).miniBatch?.value);
    t.same(sizes, [undefined, undefined, 64, 256], 'whole episodes and few turns keep the default');
    const sixHundred = Array.from({ length: 600 }, () => 4);
    t.match(chosen(12, sixHundred), { passes: { value: 10 }, learningRate: { value: 5e-4 } });
    t.match(chosen(12, [...sixHundred, 24_000]), { passes: { value: 2 } });
    t.match(chosen(12), { passes: undefined, learningRate: { value: 2e-3 } });
  },
);

t.test('an environment that fails at times is trained on, and the failures are said', async t => {
  const url = await served(
    t,
    environment('Shy-v0', { failingReset: 8 }),
    environment('Off-v0', { failingReset: 1 }),
  );
  const { printed } = await initialized(t, url, 'Shy-v0');
  t.match(
    printed,
    /Note: 8 of 64 episodes failed and were left out, as in training\. The first: .*nobody is home/,
  );
  const out = join(t.testdir(), 'off.yaml');
  await t.rejects(init('Off-v0', [], { servers: url, out }), /nobody is home/);
});

t.test('rewards of an unusual size are scaled to returns near 1', async t => {
  const url = await served(t, environment('Pays-v0'));
  const { out, text } = await initialized(t, url, 'Pays-v0', 'pay=1000000');
  t.equal(loadRunSettings(out).algorithm.reward_scale, 1e-6);
  t.match(text, / reward_scale: 1\.0e-6 # random play returned up to 3000000: /);
});

t.test('an answer that is no action is no way out of actions that cost something', async t => {
  const space = { type: 'Text', minLength: 1, maxLength: 8 } as never;
  const url = await served(t, environment('Costs-v0', { actionSpace: space }));
  const { out, text } = await initialized(t, url, 'Costs-v0', 'pay=-1000000');
  t.equal(loadRunSettings(out).rollout.format_penalty, -1_000_000);
  t.match(text, / format_penalty: -1000000 # an answer that is no action costs as much as the worst action/);

  const penalty = (player: Survey['player'], leastReward: number, ...returns: number[]) => {
    const episodes = returns.map(earned => ({ steps: 3, success: false, return: earned }));
    const document = { env_id: 'Costs-v0', max_episode_steps: 4 };
    const survey = { document, player, stepLimit: 4, observations: [], episodes, leastReward };
    return chooseSettings(survey as unknown as Survey).formatPenalty?.value;
  };
  t.equal(penalty('examples', 0, 0, 1), undefined, 'the default is enough');
  t.equal(penalty('examples', -0.05, -0.1, 1), undefined);
  t.equal(penalty('examples', -3, -6, 2), -3);
  t.equal(penalty('examples', 0, 0, 2e6), -1e5, 'a tenth of the usual return');
  t.equal(penalty('names', -3, -6, 2), undefined, 'every answer is an action');
});

t.test(
  'responses are held to the valid actions that states list; other text keeps its form by small steps',
  async t => {
    const free = { words: false, actionSpace: { type: 'Text', minLength: 1, maxLength: 8 } as never };
    const url = await served(
      t,
      environment('Lists-v0', { ...free, lists: true }),
      environment('Free-v0', free),
    );
    const lists = await initialized(t, url, 'Lists-v0');
    t.match(lists.text, / constrained: true # every response is a valid action of its state\n/);
    t.match(loadRunSettings(lists.out), {
      rollout: { constrained: true, response_length: Math.ceil(1.5 * 'say no'.length + 1) },
      algorithm: { target_kl: 0.1 },
      warm_start: null,
    });
    const { out, text } = await initialized(t, url, 'Free-v0');
    t.match(text, / target_kl: 0\.05 # \w/);
    t.match(loadRunSettings(out), { rollout: { constrained: false }, algorithm: { target_kl: 0.05 } });
  },
);

t.test('an existing file is kept without --force', async t => {
  const url = await served(t, environment('Yes-v0'));
  const out = join(t.testdir({ 'mine.yaml': 'mine' }), 'mine.yaml');
  const again = (force: boolean) => init('Yes-v0', [], { servers: url, out, force });
  await t.rejects(again(false), {
    message: `${out} is there already: name another file with --out, or replace it with --force`,
  });
  t.equal(readFileSync(out, 'utf8'), 'mine');
  t.capture(console, 'log');
  t.equal(await again(true), 0);
  t.match(readFileSync(out, 'utf8'), /train_tags: \[ Yes \]/);
});

t.test('an environment that cannot be trained is refused, and nothing is written', async t => {
  const picture = Buffer.from(Array.from({ length: 900 }, (_, i) => (i * 97) % 256)).toString('base64');
  const url = await served(
    t,
    environment('Yes-v0'),
    environment('Broken-v0', { fails: true }),
    environment('Seen-v0', { observation: `{"image":"${picture}"}` }),
    environment('Url-v0', { observation: 'Look: data:image/png;base64,iVBORw0KGgo=' }),
  );
  const folder = t.testdir();
  const refused = (envId: string, message: RegExp, servers = url, settings: string[] = []) =>
    t.rejects(init(envId, settings, { servers, out: join(folder, 'x.yaml') }), { message }, String(message));
  await refused('Yess-v0', /has no environment Yess-v0, did you mean Yes-v0\? It has .*Sokoban-v0/);
  const nowhere = { servers: 'http://127.0.0.1:1', out: join(folder, 'none', 'x.yaml') };
  await t.rejects(
    init('Yes-v0', [], nowhere),
    { code: 'ENOENT', path: nowhere.out },
    'before anything is played',
  );
  await refused('Nothing-like-it', /has no environment Nothing-like-it\. It has /);
  await refused(
    'Yes-v0',
    /nothing listens there\)\nStart one in another terminal: npm run env-server -- --port 1/,
    'http://127.0.0.1:1',
  );
  await refused('Yes-v0', /--servers takes the address of an environment server, .* got 127/, '127.0.0.1:1');
  await refused('Yes-v0', /unknown key pays, did you mean `pay`/, url, ['pays=2']);
  await refused('Broken-v0', /environment_fault.*the dice are lost/);
  for (const id of ['Seen-v0', 'Url-v0'])
    await refused(id, /shows a picture as Base64 .* reads text: say in/);
  t.throws(
    () => chooseSettings(listing({ document: { vocabulary: [] } }), { turn: 2049, response: 2 }),
    /has up to 3 characters, 2049 words of its vocabulary; a small policy reads 2048\..*leave `vocabulary` out/,
  );
  t.same(readdirSync(folder), []);
});

t.test('doubts are noted in the file and printed at the end', async t => {
  const space = { type: 'Text', minLength: 1, maxLength: 8 } as never;
  const url = await served(
    t,
    environment('Endless-v0', { wins: 0, maxEpisodeSteps: 1000 }),
    environment('Mute-v0', { random: false, actionSpace: space }),
    environment('Flat-v0'),
  );
  const said = async (envId: string, warning: RegExp, ...settings: string[]) => {
    const { text, printed, out } = await initialized(t, url, envId, ...settings);
    t.match(text, warning);
    t.match(printed, warning);
    return loadRunSettings(out);
  };
  const endless = await said('Endless-v0', /No episode ended within 64 steps, .* lower max_episode_steps/);
  t.equal(endless.tags.Endless.max_turn, 64);
  t.equal(endless.warm_start!.episodes, 100, 'each shows 64 answers');
  const mute = await said('Mute-v0', /Mute-v0 has no random player: .* List `actions` in its definition/);
  t.equal(mute.warm_start, null);
  await said('Flat-v0', /All episodes returned 0: with nothing to compare, nothing is learned/, 'pay=0');
});

t.test(
  'listed texts are the only responses, and answers that are spelled are learned in smaller steps',
  async t => {
    const episodes = [{ steps: 3, success: false, return: 1 }];
    const chosen = (player: Survey['player'], response: number, type = 'Text') => {
      const document = { max_episode_steps: 4, action_space: { gymnasium: { type } } };
      const survey = { document, player, stepLimit: 4, observations: [], episodes, leastReward: -9 };
      const choices = chooseSettings(survey as unknown as Survey, { turn: 9, response });
      const { constrained, targetKl, formatPenalty, learningRate } = choices;
      return [constrained?.value, targetKl?.value, formatPenalty?.value, learningRate.value];
    };
    const held = [true, 0.1, undefined, 2e-3];
    t.same(chosen('names', 5), held);
    t.same(chosen('examples', 2), held);
    t.same(chosen('examples', 2, 'Json'), [undefined, 0.05, -9, 2e-3], 'a number may be another');
    t.same(chosen('examples', 5), [undefined, 0.05, -9, 5e-4]);
    t.same(chosen('reference', 5), [undefined, 0.05, -9, 5e-4]);
  },
);

t.test('a reward at the end of a long episode reaches its beginning', async t => {
  const gamma = (steps: number) => {
    const episodes = [{ steps, success: true, return: 1 }];
    const survey = {
      document: {},
      player: 'names',
      stepLimit: 32,
      observations: [],
      episodes,
      leastReward: 0,
    };
    return chooseSettings(survey as unknown as Survey).gamma.value;
  };
  t.same([gamma(3), gamma(6), gamma(10), gamma(30)], [0.9, 0.9, 0.933, 0.977]);
});

t.test('ends without a success are pointed out, as only the return can rise then', async t => {
  const episode = { steps: 3, success: false, ended: true, terminated: true };
  const survey = {
    document: { env_id: 'Ends-v0', max_episode_steps: 4 },
    player: 'names',
    stepLimit: 4,
    failed: { episodes: 0 },
    episodes: [-1, -2].map(earned => ({ ...episode, return: earned })),
  } as unknown as Survey;
  t.match(
    warningsOf(survey).join('\n'),
    /2 of 2 episodes ended by its rules, none with `success: true` in its info: /,
  );
  const lone = environment('Lone-v0', { wins: 0 });
  const typing = {
    ...environment('Typing-v0', { wins: 0 }),
    step: ({ steps }: JsonObject, action: Json) => ({
      state: { steps: (steps as number) + 1 },
      reward: Number(action === 'yes' || action === 0),
      terminated: steps === 2,
      info: { success: false, succes: true, action_is_valid: true, action_is_effective: true },
    }),
  } as unknown as AnyEnvironment;
  const url = await served(t, lone, typing);
  t.match((await initialized(t, url, 'Lone-v0')).printed, /Return to beat: \d/);
  t.match(
    (await initialized(t, url, 'Typing-v0')).text,
    /none with `success: true` in its info \(it has `succes`\): if such/,
  );
});

t.test('a reward of one episode alone is pointed out with what makes it less rare', async t => {
  const survey = (rewarded: number) =>
    ({
      document: { env_id: 'Rare-v0', max_episode_steps: 4 },
      player: 'names',
      stepLimit: 4,
      failed: { episodes: 0 },
      episodes: Array.from({ length: 64 }, (_, i) => {
        return { steps: 1, success: i < rewarded, return: i < rewarded ? 1 : 0, ended: true };
      }),
    }) as unknown as Survey;
  t.match(
    warningsOf(survey(1)).join(),
    /Only 1 of 64 episodes returned anything but 0\..*--demonstrations FILE/,
  );
  t.match(warningsOf(survey(0)).join(), /None of 64 episodes was rewarded more than another\./);
  t.same(warningsOf(survey(2)), []);
});

t.test('penalties that make waiting the best choice are pointed out', async t => {
  const survey = (idleReward: number | undefined, ...returns: number[]) =>
    ({
      document: { env_id: 'Lift-v0', max_episode_steps: 10 },
      player: 'names',
      stepLimit: 10,
      failed: { episodes: 0 },
      idleReward,
      episodes: returns.map(earned => ({ steps: 3, return: earned, success: earned > 0, ended: true })),
    }) as unknown as Survey;
  const isNamed = (...[idle, ...returns]: Parameters<typeof survey>) =>
    warningsOf(survey(idle, ...returns)).some(note => /Trying costs more than waiting/.test(note));
  t.match(
    warningsOf(survey(0, 1, -0.5, -0.5, -0.5)).join(),
    /random play returns -0\.125, an episode without penalties 0\. .*loss\.entropy_coefficient/,
  );
  const entropy = (...returns: number[]) => chooseSettings(survey(0, ...returns)).entropy?.value;
  t.same([entropy(1, -0.5, -0.5, -0.5), entropy(1, -0.5)], [0.2, undefined]);
  const starts = (...returns: number[]) => chooseSettings(survey(0, ...returns)).warmStart !== undefined;
  t.same([starts(1, -0.5, -0.5, -0.5), starts(1, -0.5)], [false, true]);
  const drawn: Survey = { ...survey(0, 1, -0.5, -0.5, -0.5), player: 'drawn' };
  const {
    warmStart,
    responseLength,
    entropy: chance,
  } = chooseSettings(drawn, {
    turn: 9,
    response: 9,
    schema: { longest: 20 },
  });
  t.ok(warmStart, 'random play shows the usual size of numbers');
  t.equal(responseLength.value, 20, 'the longest answer');
  t.notOk(chance, 'which would make numbers long');
  t.notOk(isNamed(-0.1, 1, -0.5, -0.5, -0.5), 'waiting costs more');
  t.notOk(isNamed(undefined, 1, -0.5, -0.5, -0.5), 'every step ends the episode');
  t.notOk(isNamed(0, 1, -0.5), 'it pays already');
  t.ok(isNamed(-0.01, 1, -0.5, -0.5, -0.5));
});

t.test('any number of valid actions is measured', async t => {
  t.equal(mostOf(Array.from({ length: 1_000_000 }, (_, i) => i % 7)), 6);
});
