/** One task of the pretrained chat model: the settings of the commands of docs/how-to/pretrained-models.md. */
export interface Task {
  /** Tag of configs/tags.yaml. */
  readonly tag: string;
  readonly config: string;
  readonly recipe: string;
  /** Longest sequence, in tokens. */
  readonly context: number;
  /** Lines of Markdown below its results. */
  readonly note?: readonly string[];
  /** Settings of every command. */
  readonly settings: readonly string[];
  /** Settings of `sft`. */
  readonly demonstrations: readonly string[];
  /** Settings of `train`. */
  readonly training: readonly string[];
}

const CHAT = [
  'rollout.prompt=chat',
  'loss.entropy_coefficient=0',
  'training.validate_first=false',
  'training.validate_every=1000000',
  'diagnostics.collapse.every=0',
];

/** Pretraining that makes a chat model of fresh weights. */
export const PRETRAINING = {
  chats: 2400,
  config: 'configs/bandit-nano.yaml',
  settings: [
    ...CHAT,
    'train_tags=[]',
    'policy.value_head=false',
    'algorithm.advantage=rloo',
    'policy.context=96',
    'warm_start.learn=everything',
    'warm_start.batch_size=32',
    'warm_start.epochs=1',
    'seed=0',
  ],
};

export const TASKS: readonly Task[] = [
  {
    tag: 'Bandit',
    config: 'configs/bandit-nano.yaml',
    recipe: '[rloo,lora]',
    note: [
      'The recipe is `rloo`: with groups of 8, `grpo` leans towards the arm that pays less, as',
      '[the results](../reference/results.md#where-dividing-by-the-deviation-leads-astray) say.',
      '',
      'The demonstrations are by random players. The best player reaches 100 % and a random one 47.3 % in',
      '`npm run trainer -- evaluate configs/bandit-nano.yaml --policy optimal --policy random validation.episodes=256`.',
      '',
      'The settings were chosen on seed 1; seeds 0 and 2 were run once.',
    ],
    context: 640,
    settings: [...CHAT, 'policy.context=640', 'rollout.response_length=32', 'validation.episodes=256'],
    demonstrations: [
      'warm_start.episodes=512',
      'warm_start.batch_size=4',
      'warm_start.epochs=2',
      'warm_start.learning_rate=1e-3',
    ],
    training: [
      'rollout.env_groups=8',
      'algorithm.mini_batch_size=16',
      'optimizer.learning_rate=1.25e-3',
      'optimizer.warmup_iterations=2',
      'training.steps=36',
    ],
  },
  {
    tag: 'FrozenLake',
    config: 'configs/frozenlake-grpo.yaml',
    recipe: '[rloo,lora]',
    note: [
      "The lake is Gymnasium's of 4 × 4 cells, not slippery, in two turns of three moves. A third of the turns of",
      'demonstrations are random. The best player reaches the goal in 100 % of 512 episodes, a random one in 0.0 %',
      '(`evaluate --policy optimal --policy random` with the settings below).',
    ],
    context: 512,
    settings: [
      ...CHAT,
      'tags.FrozenLake={env_id: FrozenLake-v0, config: {map: 4x4, success_rate: 1}, max_turn: 2, max_actions_per_turn: 3, optimum_success: 1, random_success: null}',
      'policy.context=512',
      'rollout.response_length=32',
      'validation.episodes=128',
    ],
    demonstrations: [
      'warm_start.policy=optimal',
      'warm_start.random_turns=0.35',
      'warm_start.learn_random_turns=true',
      'warm_start.learn=responses',
      'warm_start.episodes=192',
      'warm_start.batch_size=4',
      'warm_start.epochs=2',
      'warm_start.learning_rate=1e-3',
    ],
    training: [
      'rollout.env_groups=6',
      'rollout.group_size=8',
      'algorithm.mini_batch_size=16',
      'optimizer.learning_rate=2e-3',
      'optimizer.warmup_iterations=2',
      'training.steps=12',
    ],
  },
];
