import t from 'tap';
import { Type } from 'typebox';
import type { AnyEnvironment, Environment } from '../../env-server/environments/core/environment.ts';
import { serve } from '../rollout/server.test-data.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import { tinySettings, trainingRows, trainTiny } from './runs.test-data.ts';

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

const echo = {
  tags: { Echo: { env_id: 'Echo-v0', max_turn: 2 } },
  train_tags: ['Echo'],
  training: { steps: 1, validate_every: 1 },
};

t.test(
  'an environment without a reference player trains, and its validation levels can be left out',
  async t => {
    const [{ name: url }] = (await serve(t, {}, [ECHO as unknown as AnyEnvironment])).servers;
    const over = { ...echo, validation: { episodes: 1, unseen_levels: true } };
    const run = await trainTiny(tinySettings(url, t.testdir(), 'echo', over));
    t.equal(trainingRows(run).length, 1);
    t.equal(latestCheckpoint(run)!.state.validationLevels.length, 1, 'known from the first state alone');
  },
);
