import { fileURLToPath } from 'node:url';
import t from 'tap';
import { Type } from 'typebox';
import type { AnyEnvironment, Environment } from '../../../env-server/environments/core/environment.ts';
import type { Json } from '../../../shared/json.ts';
import { demonstrate, demonstrationsOf } from '../../data/demonstrations.ts';
import { scoreEpisodes } from '../../data/scoring.ts';
import { referenceAgent } from '../../rollout/agents/agent.ts';
import { EnvironmentSession } from '../../rollout/environment-session.ts';
import { type Episode, samplesOf } from '../../rollout/episode.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { planGroups } from '../../rollout/tag.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { silentProgress } from '../../tracking/progress.ts';
import { MAX_MS, type Row, tinySettings, trainingRows, trainTiny } from '../runs.test-data.ts';
import { openPolicy } from './open-policy.ts';
import { openRunContext, sampledAgent } from './run-context.ts';

const never = new AbortController().signal;

/** Actions of a rung: the last may be taken at once, and one begins another. */
const actionsAt = (rung: number) => ['up', 'up up', `rest at ${rung}`, ...(rung > 0 ? [`jump ${rung}`] : [])];

/** A ladder with other actions on each rung. */
const LADDER: Environment<{ readonly max_steps: number }, { readonly rung: number }> = {
  spec: {
    id: 'Ladder-v0',
    title: 'Ladder',
    description: 'For tests.',
    tags: ['test'],
    configSchema: Type.Object({ max_steps: Type.Integer({ default: 4 }) }, { additionalProperties: false }),
    optionsSchema: Type.Object({}, { additionalProperties: false }),
    observationSpace: { type: 'Text', maxLength: 20 },
    actionSpace: { type: 'Text', maxLength: 20 },
    observationFormats: ['text'],
    rewardRange: [0, 1],
    maxEpisodeSteps: 4,
    exampleAction: 'up',
    history: [{ version: 0, change: 'First.' }],
  },
  describe: () => ({ instruction: 'Climb.' }),
  reset: () => ({ rung: 0 }),
  step: ({ rung }, action) => {
    const valid = actionsAt(rung).includes(action as string);
    const next = valid ? rung + (action === 'up up' ? 2 : 1) : rung;
    const success = action === 'up up';
    return {
      state: { rung: next },
      reward: success ? 1 : 0,
      terminated: next > 3,
      info: { success, action_is_valid: valid, action_is_effective: valid },
    };
  },
  observe: ({ rung }) => `rung ${rung}`,
  validActions: ({ rung }) => actionsAt(rung),
};

const ladderWith = (rollout: Json) => ({
  tags: { Ladder: { env_id: 'Ladder-v0', max_turn: 4, max_actions_per_turn: 2, max_actions_per_traj: 8 } },
  train_tags: ['Ladder'],
  policy: { context: 256, tokenizer: 'bytes' },
  rollout: { constrained: true, response_length: 24, env_groups: 2, group_size: 4, ...(rollout as object) },
  algorithm: { mini_batch_size: 8 },
  training: { steps: 1, validate_every: 9 },
});

for (const think of [false, true]) {
  t.test(
    `think ${think}: every action is one of its state, and log-probabilities are those of the sampled distribution`,
    { timeout: MAX_MS },
    async t => {
      const [{ name: url }] = (await serve(t, {}, [LADDER as AnyEnvironment])).servers;
      const settings = tinySettings(url, t.testdir(), 'ladder', ladderWith({ think }));
      const context = await openRunContext(settings, undefined, () => {}, never);
      t.teardown(() => context.close());
      const policy = await openPolicy(settings, context, undefined);
      t.teardown(() => policy.close());
      t.same(context.grammars, {});
      const played = async (temperature: number): Promise<readonly Episode[]> => {
        const plans = planGroups({ tags: [{ tag: 'Ladder', groups: 4 }], groupSize: 4, firstSeed: 1 });
        const agent = sampledAgent(context, policy);
        const sampling = { temperature, topK: 0, topP: 1 };
        const { episodes } = await context.collector.collect(plans, { agent, sampling, samplingSeed: 3 });
        for (const { turns } of episodes) {
          for (const { state, actions, penalty } of turns) {
            t.equal(actions.length, 1);
            t.equal(penalty, 0);
            t.ok(
              actionsAt(Number(state.slice('rung '.length))).includes(actions[0] as string),
              String(actions),
            );
          }
        }
        return episodes;
      };
      await played(0);
      const episodes = await played(1);
      const said = new Set(episodes.flatMap(({ turns }) => turns.flatMap(({ actions }) => actions)));
      for (const action of ['up', 'up up', 'rest at 0', 'rest at 2']) t.ok(said.has(action), action);
      const scores = await scoreEpisodes(policy, episodes, settings);
      let tokens = 0;
      for (const sample of episodes.flatMap(samplesOf)) {
        sample.lossMask.forEach((on, i) => {
          if (!on) return;
          tokens++;
          t.ok(Math.abs(scores.get(sample)!.logProbs[i] - sample.logProbs[i]) <= 1e-5);
        });
      }
      t.ok(tokens > 100, `${tokens} tokens`);
    },
  );
}

t.test('training takes the masks of the states', { timeout: MAX_MS }, async t => {
  const [{ name: url }] = (await serve(t, {}, [LADDER as AnyEnvironment])).servers;
  const [row] = trainingRows(await trainTiny(tinySettings(url, t.testdir(), 'ladder', ladderWith({}))));
  t.equal(row['train/Ladder/action_is_valid'], 1);
  t.ok(Math.abs(row['actor/ppo_kl']) < 1e-6, 'trained as sampled');
});

/** A ladder with JSON actions, of which each rung lists two, in another order of their keys than the schema's. */
const JSON_LADDER = {
  ...LADDER,
  spec: {
    ...LADDER.spec,
    actionSpace: {
      type: 'Json',
      schema: {
        type: 'object',
        properties: { rung: { type: 'integer', minimum: 0 }, way: { enum: ['up', '<up>'] } },
        required: ['rung', 'way'],
        additionalProperties: false,
      },
    },
    exampleAction: { rung: 0, way: 'up' },
  },
  step: ({ rung }: { rung: number }, action: Json) => ({
    state: { rung: rung + 1 },
    reward: 0,
    terminated: rung === 3,
    info: {
      success: rung === 3,
      action_is_valid: (action as { readonly rung: number }).rung === rung,
      action_is_effective: true,
    },
  }),
  validActions: ({ rung }: { rung: number }) => ['up', '<up>'].map(way => ({ way, rung })),
} as unknown as AnyEnvironment;

t.test(
  'JSON actions are held to those of their state, too, in sampling, training and random play',
  async t => {
    const random = { title: 'Valid', plan: () => [] };
    const [{ name: url }] = (
      await serve(t, {}, [{ ...JSON_LADDER, references: { random } } as AnyEnvironment])
    ).servers;
    const one = { env_id: 'Ladder-v0', max_turn: 4, max_actions_per_turn: 1, max_actions_per_traj: 4 };
    const settings = tinySettings(url, t.testdir(), 'json', {
      ...ladderWith({ response_length: 40 }),
      tags: { Ladder: one },
      warm_start: { policy: 'random', episodes: 8, epochs: 1 },
    });
    const context = await openRunContext(settings, undefined, () => {}, never);
    t.teardown(() => context.close());
    const policy = await openPolicy(settings, context, undefined);
    t.teardown(() => policy.close());
    const sampling = { temperature: 1, topK: 0, topP: 1 };
    const ways = new Set<string>();
    for (const agent of [sampledAgent(context, policy), referenceAgent({ policy: 'random' })]) {
      const plans = planGroups({ tags: [{ tag: 'Ladder', groups: 8 }], groupSize: 1, firstSeed: 1 });
      const { episodes } = await context.collector.collect(plans, { agent, sampling, samplingSeed: 3 });
      const turns = episodes.flatMap(episode => episode.turns);
      t.equal(turns.length, 32);
      for (const { info, penalty, actions, exploratory, tokens } of turns) {
        t.same([info.action_is_valid, penalty, exploratory], [true, 0, undefined]);
        const { way } = actions[0] as { readonly way: string };
        ways.add(way);
        if (way === 'up') t.equal(tokens[1] - tokens[0], 4, 'parts between numbers are one token each');
      }
    }
    t.same(ways, new Set(['up', '<up>']));
    const [row] = trainingRows(await trainTiny(settings));
    t.equal(row['train/Ladder/action_is_valid'], 1);
    t.ok(Math.abs(row['actor/ppo_kl']) < 1e-6, 'trained as sampled');
  },
);

/** A ladder with teachers: one names an action that the second rung does not list, the other no valid one at all. */
const TAUGHT = {
  ...LADDER,
  references: {
    heuristic: {
      title: 'Heuristic',
      plan: ({ rung }: { rung: number }, count: number) =>
        rung === 1 ? ['fly'] : ['up', 'up'].slice(0, count),
    },
    oracle: { title: 'Oracle', plan: () => ['fly'] },
  },
} as unknown as AnyEnvironment;
const QWEN = fileURLToPath(new URL('../../../test/golden/models/qwen2-tiny', import.meta.url));

for (const init of [null, QWEN]) {
  t.test(
    `${init ? 'chat' : 'compact'}: a warm start learns under the masks of the states`,
    { timeout: MAX_MS },
    async t => {
      const [{ name: url }] = (await serve(t, {}, [TAUGHT])).servers;
      const settingsOf = (policy: string, learn = 'responses') => {
        const base = ladderWith(init ? { prompt: 'chat' } : {});
        return tinySettings(url, t.testdir(), 'taught', {
          ...base,
          ...(init ? { policy: { init, context: 800 }, loss: { entropy_coefficient: 0 } } : {}),
          algorithm: { ...base.algorithm, ...(init ? { advantage: 'grpo' } : {}) },
          training: { steps: 0 },
          warm_start: { policy, learn, episodes: 12, epochs: 1, batch_size: 4, validation_share: 0.5 },
        });
      };
      const context = await openRunContext(settingsOf('random'), init ?? undefined, () => {}, never);
      t.teardown(() => context.close());
      const taught = async (policy: string): Promise<readonly Episode[]> => {
        const plans = planGroups({ tags: [{ tag: 'Ladder', groups: 6 }], groupSize: 1, firstSeed: 1 });
        return demonstrate(context.collector, plans, { policy }, 3);
      };
      for (const episode of await taught('random')) {
        for (const { tokenIds, lossMask, allowed } of demonstrationsOf(episode, 'responses')) {
          const learned = Array.from(lossMask.keys()).filter(i => lossMask[i]);
          t.ok(learned.length > episode.turns.length);
          for (const i of learned) t.ok(allowed!.get(i)!.includes(tokenIds[i]));
          t.ok(
            learned.some(i => allowed!.get(i)!.length > 1),
            'there was a choice',
          );
        }
      }
      for (const episode of await taught('heuristic')) {
        t.same(
          episode.turns.map(({ actions, exploratory = false }) => [actions, exploratory]),
          [[['up'], false], ...Array.from({ length: 3 }, () => [[], 'not_allowed'])],
          'one action a turn, and nothing is learned from an action that the state does not list',
        );
        const [{ lossMask }] = demonstrationsOf(episode, 'responses');
        t.equal(lossMask.lastIndexOf(1) + 1, episode.turns[0].tokens[1]);
      }
      for (const learn of init ? ['responses'] : ['responses', 'everything']) {
        const { metrics } = await trainTiny(settingsOf('random', learn));
        const rows = readJsonLines(metrics) as Row[];
        const losses = rows.flatMap(row => [row['sft/validation_loss'], row['sft/loss'] ?? []].flat());
        t.equal(losses.length, 3);
        if (learn === 'responses') t.ok(Math.max(...losses) < Math.log(4), `at most four choices: ${losses}`);
        else t.ok(Math.min(...losses) > Math.log(4), `prompts have no mask: ${losses}`);
      }
      const warnings: string[] = [];
      await trainTiny(settingsOf('heuristic'), {
        ...silentProgress,
        warn: (text: string) => warnings.push(text),
      });
      t.match(
        warnings.join(),
        /36 of 48 turns of the demonstrations took an action that their state does not/,
      );
      await t.rejects(trainTiny(settingsOf('oracle')), /no answer of the demonstrations .* no valid action/);
    },
  );
}

t.test('a state that lists no actions takes any response', { timeout: MAX_MS }, async t => {
  const some = { ...LADDER, validActions: ({ rung }: { rung: number }) => (rung > 0 ? [] : ['up']) };
  const [{ name: url }] = (await serve(t, {}, [some as AnyEnvironment])).servers;
  for (const context_mode of ['full', 'single_turn']) {
    const rollout = { context_mode, max_context_window: context_mode === 'full' ? 0 : 1 };
    const settings = tinySettings(url, t.testdir(), 'ladder', {
      ...ladderWith(rollout),
      optimizer: { learning_rate: 1e-12 }, // every step then sees the policy that sampled
    });
    const [row] = trainingRows(await trainTiny(settings));
    t.ok(row['train/Ladder/action_is_valid'] < 1);
    t.ok(Math.abs(row['actor/ppo_kl']) < 1e-5, `trained as sampled: ${row['actor/ppo_kl']}`);
  }
});

t.test('branches, and sessions that were lost, have the valid actions of their state', async t => {
  const servers = await serve(t, {}, [LADDER as AnyEnvironment]);
  const spec = { environmentId: 'Ladder-v0', config: {}, groupName: 'g', seed: 1, validActions: true };
  for (const copyable of [true, false]) {
    const [session] = await EnvironmentSession.openGroup(servers, { ...spec, copyable }, 1);
    t.same(session.validActions, actionsAt(0));
    t.same((await session.branch(1))[0].validActions, actionsAt(0));
    await session.act(['up']);
    t.same(session.validActions, actionsAt(1));
    const [branch] = await session.branch(1);
    t.same(branch.validActions, actionsAt(1));
    const { server, sessionId } = session.handle;
    await server.batched('close', { session_id: sessionId });
    await session.act(['up', 'unknown']);
    t.equal(session.moves, 1);
    t.same(session.validActions, actionsAt(2));
    await branch.act(['up up']);
    t.same(branch.validActions, actionsAt(3));
    for (const open of [session, branch]) await open.close();
  }
});

t.test('an environment that lists no actions anywhere is refused by name', { timeout: MAX_MS }, async t => {
  const { validActions, ...mute } = LADDER;
  const [{ name: url }] = (await serve(t, {}, [mute as AnyEnvironment])).servers;
  const settings = tinySettings(url, t.testdir(), 'mute', ladderWith({}));
  await t.rejects(
    openRunContext(settings, undefined, () => {}, never),
    /responses under Ladder have no grammar; it needs states that list their valid actions/,
  );
});

/** A ladder with named actions, of which each rung lists some. */
const NAMED = {
  ...LADDER,
  spec: { ...LADDER.spec, actionSpace: { type: 'Discrete', n: 3, names: ['up', 'up up', 'rest'] } },
  describe: () => ({ instruction: 'Climb.', actions: ['up', 'up up', 'rest'] }),
  step: ({ rung }: { rung: number }, action: Json) => ({
    state: { rung: rung + 1 },
    reward: 0,
    terminated: rung === 3,
    info: { action_is_valid: rung === 0 || (action === 2) === rung % 2 > 0, action_is_effective: true },
  }),
  validActions: ({ rung }: { rung: number }) =>
    rung % 2 > 0 ? ['rest'] : rung > 0 ? ['up', 'up up'] : ['up', 'up up', 'rest'],
} as unknown as AnyEnvironment;

t.test('named actions are held to those of their state, too, and random play draws from them', async t => {
  const [{ name: url }] = (await serve(t, {}, [NAMED])).servers;
  const one = { env_id: 'Ladder-v0', max_turn: 4, max_actions_per_turn: 1, max_actions_per_traj: 4 };
  const settings = tinySettings(url, t.testdir(), 'named', { ...ladderWith({}), tags: { Ladder: one } });
  const context = await openRunContext(settings, undefined, () => {}, never);
  t.teardown(() => context.close());
  const policy = await openPolicy(settings, context, undefined);
  t.teardown(() => policy.close());
  const sampling = { temperature: 1, topK: 0, topP: 1 };
  for (const agent of [sampledAgent(context, policy), referenceAgent({ policy: 'random' })]) {
    const plans = planGroups({ tags: [{ tag: 'Ladder', groups: 8 }], groupSize: 1, firstSeed: 1 });
    const { episodes } = await context.collector.collect(plans, { agent, sampling, samplingSeed: 3 });
    const turns = episodes.flatMap(episode => episode.turns);
    t.equal(turns.length, 32);
    for (const { info, penalty } of turns) t.same([info.action_is_valid, penalty], [true, 0]);
  }
  const { validActions, ...mute } = NAMED;
  const [{ name }] = (await serve(t, {}, [mute as AnyEnvironment])).servers;
  const plain = tinySettings(name, t.testdir(), 'plain', { ...ladderWith({}), tags: { Ladder: one } });
  const whole = await openRunContext(plain, undefined, () => {}, never);
  t.teardown(() => whole.close());
  t.ok('Ladder' in whole.grammars, 'where no state says more, all names have one grammar');
});

t.test(
  'an environment with a reset that fails at times can be trained; one that always fails is refused',
  async t => {
    let resets = 0;
    const failing = (times: number) =>
      ({
        ...LADDER,
        reset: () => {
          if (++resets <= times) throw new Error('the ladder is away');
          return { rung: 0 };
        },
      }) as unknown as AnyEnvironment;
    for (const times of [2, Number.POSITIVE_INFINITY]) {
      resets = 0;
      const [{ name: url }] = (await serve(t, {}, [failing(times)])).servers;
      const opening = openRunContext(
        tinySettings(url, t.testdir(), 'failing', ladderWith({})),
        undefined,
        () => {},
        never,
      );
      if (times > 2) await t.rejects(opening, /the ladder is away/);
      else await (await opening).close();
      t.equal(resets, times > 2 ? 5 : 3);
    }
  },
);
