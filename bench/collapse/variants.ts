import { FILTER, NO_FILTER } from '../claims/claim.ts';

export const CONFIG = 'configs/bandit-nano.yaml';

/** Settings of all runs. */
export const SHARED = [
  'train_tags=[Bandit]',
  'tags.Bandit.config={low_reward: 0.45, high_probability: 0.5}', // a spread of 0.5 on a difference of 0.05
  'validation.tags=[Bandit]',
  'rollout.think=true',
  'rollout.response_length=24',
  'rollout.env_groups=16',
  'rollout.group_size=4',
  'policy.workers=1',
  'policy.value_head=false',
  'algorithm.advantage=grpo',
  'training.validate_first=false',
  'training.validate_every=0',
];

export const WARM = ['warm_start.policy=random', 'warm_start.episodes=1000', 'warm_start.epochs=12'];

/** Settings of every run of reinforcement learning. */
export const LEARNS = [
  'warm_start=null',
  'training.steps=400',
  'training.checkpoint_every=200',
  'training.early_stopping.std_share=0',
  'algorithm.entropy_on=all',
  'rollout.format_penalty=-1', // the form is to last
  'optimizer.learning_rate=3e-4',
  'diagnostics.collapse.every=20',
  'tracking.trajectories_every=20',
];

const HIGH = 'loss.entropy_coefficient=0.05';
const LOW = 'loss.entropy_coefficient=0.001';

export const VARIANTS = [
  { name: 'high entropy bonus', settings: [HIGH, ...NO_FILTER] },
  { name: 'high entropy bonus, seed 1', settings: [HIGH, ...NO_FILTER, 'seed=1'] },
  { name: 'high entropy bonus, filter', settings: [HIGH, ...FILTER] },
  { name: 'low entropy bonus', settings: [LOW, ...NO_FILTER] },
];
