/** How a pretrained chat model learns one task: the commands of docs/how-to/pretrained-models.md, and their settings. */
export interface Task {
  /** Of configs/tags.yaml. */
  readonly tag: string;
  readonly config: string;
  readonly recipe: string;
  /** Longest sequence, in tokens. */
  readonly context: number;
  /** Lines of Markdown below its results. */
  readonly note?: readonly string[];
  /** Of every command. */
  readonly settings: readonly string[];
  /** Of `sft`. */
  readonly demonstrations: readonly string[];
  /** Of `train`. */
  readonly training: readonly string[];
}

const CHAT = [
  'rollout.prompt=chat',
  'loss.entropy_coefficient=0',
  'training.validate_first=false',
  'training.validate_every=1000000',
  'diagnostics.collapse.every=0',
];

/** How a model with fresh weights becomes a chat model. */
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
    ],
    context: 640,
    settings: [...CHAT, 'policy.context=640', 'rollout.response_length=32', 'validation.episodes=128'],
    demonstrations: ['warm_start.batch_size=8', 'warm_start.epochs=4', 'warm_start.warmup_steps=5'],
    training: [
      'rollout.env_groups=16',
      'optimizer.learning_rate=3e-3',
      'optimizer.warmup_iterations=2',
      'training.steps=10',
    ],
  },
];
