import type { JsonObject } from '../../shared/json.ts';

interface Example {
  readonly summary: string;
  readonly value: JsonObject;
}

const SCRIPT = `// Guess a number: the state is plain JSON, randomness comes from rng only.
function reset(config, rng) {
  return { secret: 1 + rng.integer(config.largest), last: null };
}

function step(state, action, rng) {
  const guess = Number(action);
  if (!Number.isInteger(guess)) {
    return { state, reward: 0, terminated: false, info: { action_is_valid: false } };
  }
  const right = guess === state.secret;
  return {
    state: { secret: state.secret, last: guess },
    reward: right ? 1 : 0,
    terminated: right,
    info: right ? { success: true, ended_by: 'right_guess' } : { success: false },
  };
}

function observe(state) {
  if (state.last === null) return 'Guess.';
  if (state.last === state.secret) return 'Right!';
  return state.last < state.secret ? 'Too low.' : 'Too high.';
}`;

/** One complete registration of every kind, for the reference and the docs; the remote ones need their service. */
export const EXAMPLES: { readonly [kind: string]: Example } = {
  tabular: {
    summary: 'tabular: a whole MDP in JSON',
    value: {
      env_id: 'demo/Crossing-v0',
      definition: {
        kind: 'tabular',
        title: 'River crossing',
        instruction: 'Reach the far bank. The ferry is safe but costs a coin; swimming is free and may fail.',
        max_episode_steps: 10,
        actions: ['Swim', 'Ferry'],
        start: { 'near bank': 1 },
        states: {
          'near bank': {
            text: 'You stand on the near bank.',
            transitions: {
              Swim: [
                { to: 'far bank', probability: 0.6, reward: 1 },
                { to: 'near bank', probability: 0.4, reward: -0.2 },
              ],
              Ferry: [{ to: 'far bank', reward: 0.5 }],
            },
          },
          'far bank': { text: 'You have crossed the river.', success: true, ended_by: 'far_bank' },
        },
      },
    },
  },
  script: {
    summary: 'script: JavaScript in a sandbox',
    value: {
      env_id: 'demo/Guess-v0',
      definition: {
        kind: 'script',
        title: 'Guess the number',
        instruction:
          'Find the secret number. After every guess you learn whether it was too low or too high.',
        max_episode_steps: 8,
        ends: { right_guess: 'Guessed the number' },
        action_space: { type: 'Text', max_length: 20, format: 'a whole number' },
        example_action: '5',
        actions: ['1', '2', '3', '4', '5', '6', '7', '8', '9', '10'],
        reward_range: [0, 1],
        config_schema: {
          type: 'object',
          properties: { largest: { type: 'integer', minimum: 2, maximum: 1000, default: 10 } },
        },
        source: SCRIPT.split('\n'),
      },
    },
  },
  webhook: {
    summary: 'remote: a service of yours that answers POST {url}/reset, /step and /close',
    value: {
      env_id: 'demo/HigherLower-v0',
      definition: {
        kind: 'remote',
        protocol: 'webhook',
        url: 'http://127.0.0.1:9001',
        title: 'Higher or lower',
        instruction:
          'Say whether the next roll of the die will be higher or lower. Five right answers in eight rolls win.',
        max_episode_steps: 8,
        action_space: { type: 'Discrete', names: ['Higher', 'Lower'] },
        example_action: 'Higher',
        reward_range: [0, 1],
        config_schema: {
          type: 'object',
          properties: { sides: { type: 'integer', minimum: 2, maximum: 100, default: 6 } },
        },
      },
    },
  },
  ragen: {
    summary: 'remote: an environment of another server like this one',
    value: {
      env_id: 'demo/FarLake-v0',
      definition: {
        kind: 'remote',
        protocol: 'ragen',
        url: 'http://127.0.0.1:8081',
        env_id: 'FrozenLake-v0',
      },
    },
  },
  openenv: {
    summary: 'remote: a service that speaks the protocol of OpenEnv',
    value: {
      env_id: 'demo/Echo-v0',
      definition: {
        kind: 'remote',
        protocol: 'openenv',
        url: 'http://127.0.0.1:8000',
        title: 'Echo',
        instruction: 'Say anything; it comes back.',
        max_episode_steps: 10,
        action_field: 'message',
        example_action: 'hello',
      },
    },
  },
  ors: {
    summary: 'remote: a service that speaks the Open Reward Standard',
    value: {
      env_id: 'demo/Arithmetic-v0',
      definition: {
        kind: 'remote',
        protocol: 'ors',
        url: 'http://127.0.0.1:8080',
        env_name: 'gsm8k',
        action_tool: 'answer',
        action_field: 'answer',
        example_action: '72',
      },
    },
  },
  composed: {
    summary: 'composed: an existing environment with other defaults and wrappers',
    value: {
      env_id: 'demo/CalmLake-v0',
      definition: {
        kind: 'composed',
        title: 'A lake without slipping',
        env_id: 'FrozenLake-v0',
        config: { success_rate: 1, size: 5 },
        wrappers: [
          { name: 'time_limit', options: { max_steps: 20 } },
          { name: 'step_penalty', options: { penalty: 0.01 } },
        ],
      },
    },
  },
};
