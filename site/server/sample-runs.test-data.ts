import { mkdirSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type {
  GroupsRow,
  RunStatus,
  SampleRecord,
  TrajectoryRecord,
} from '../../shared/run-folder/run-files.ts';

export interface SampleRun {
  readonly steps?: number;
  /** Changes to `status.json`. */
  readonly status?: Partial<RunStatus>;
  readonly seed?: number;
  /** Turns and tokens of each episode. */
  readonly turns?: number;
  readonly tokens?: number;
  /** Episodes of a trajectory file: groups of four. */
  readonly groups?: number;
  /** Further columns of every row of metrics. */
  readonly more?: (step: number) => { readonly [name: string]: unknown };
}

const LEVELS = { preset: 'deterministic', p_frozen: 1 };
const VALIDATE_EVERY = 5;
const RECORD_EVERY = 10;
const GRID = ['PFFF', 'FHFH', 'FFFH', 'HFFG'];
/** Spread of a group with the same returns, added up in another order. */
const ROUNDING = 1.5e-17;
const WORDS = ['<think>', ' I', ' go', ' down', ' then', ' right', '</think>', ' Up', ' Down', ' Right'];

/** A run folder as the trainer writes it, with numbers that look like learning. */
export function writeSampleRun(root: string, id: string, run: SampleRun = {}): string {
  const { steps = 30, seed = 1, status = {}, more = () => ({}) } = run;
  const folder = join(root, id);
  mkdirSync(join(folder, 'trajectories'), { recursive: true });
  const validations = [];
  const rows: string[] = [];
  const groups: GroupsRow[] = [];
  const time = (step: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, step)).toISOString();
  for (let step = 0; step <= steps; step++) {
    const success = 0.2 + (0.6 * step) / Math.max(1, steps);
    if (step > 0) {
      rows.push(JSON.stringify({ step, time: time(step), ...trainingRow(step, success), ...more(step) }));
      groups.push(groupsRow(step));
    }
    if (step % VALIDATE_EVERY === 0) {
      const [low, high] = [success - 0.05, success + 0.05];
      validations.push({ step, success, low, high });
      const names = { success, success_low: low, success_high: high };
      const tagged = Object.fromEntries(
        Object.entries(names).map(([name, value]) => [`val-env/Lake/${name}`, value]),
      );
      rows.push(JSON.stringify({ step, time: time(step), 'val-env/success': success, ...tagged }));
      writeEpisodes(folder, 'validation', step, run, 1);
    }
    if (step > 0 && step % RECORD_EVERY === 0) writeEpisodes(folder, 'train', step, run, 4);
  }
  writeFileSync(join(folder, 'metrics.jsonl'), rows.map(row => `${row}\n`).join(''));
  const said = rows.map((_, i) => `${time(i)} training ${i}/${rows.length}\n`);
  writeFileSync(join(folder, 'log.txt'), said.join(''));
  writeFileSync(join(folder, 'groups.jsonl'), groups.map(row => `${JSON.stringify(row)}\n`).join(''));
  writeFileSync(
    join(folder, 'tokens.jsonl'),
    WORDS.map((word, i) => `${JSON.stringify([i, word])}\n`).join(''),
  );
  writeFileSync(
    join(folder, 'config.yaml'),
    `seed: ${seed}\nalgorithm:\n  reward_components: { reward: 1, dry_feet: 0.25 }\nrollout:\n  group_size: 4\nservers:\n  - url: http://127.0.0.1:8080\n    token: secret\ntags:\n  Lake:\n    env_id: FrozenLake-v0\ntrain_tags: [Lake]\n`,
  );
  const described: RunStatus = {
    format: 1,
    state: 'finished',
    stage: 'done',
    done: steps,
    total: steps,
    step: steps,
    steps,
    eta_s: null,
    pid: process.pid,
    host: hostname(),
    started_at: time(0),
    updated_at: time(steps),
    seconds: steps,
    last_error: null,
    notes: [{ time: time(0), text: 'policy on ONNX Runtime' }],
    run: {
      name: id,
      recipe: ['grpo'],
      advantage: 'grpo',
      seed,
      model: 'scratch',
      parameters: 120_000,
      ends: { Lake: { goal: 'Reached the goal', hole: 'Fell into a hole' } },
      tags: [{ tag: 'Lake', env_id: 'FrozenLake-v0', config: LEVELS, random: 0.25, optimum: 0.94 }],
    },
    validations,
    ...status,
  };
  writeFileSync(join(folder, 'status.json'), JSON.stringify(described));
  return folder;
}

function trainingRow(step: number, success: number) {
  return {
    'train/success': success,
    'train/return': success - 0.1,
    'train/response_length': 6 + (step % 3),
    'train/Lake/format_penalty': 0.02,
    'train/Lake/ended_by/goal': success,
    'train/Lake/ended_by/hole': (1 - success) / 2,
    'train/Lake/ended_by/max_turns': (1 - success) / 2,
    'train/Lake/ended_by/time_limit': 0,
    'train/Lake/rewards/dry_feet': 2 * success,
    'actor/entropy': 1.2 / (1 + step / 40),
    'actor/ppo_kl': 0.002,
    'actor/grad_norm': 0.4 + 0.1 * Math.sin(step),
    'critic/vf_explained_var': 0.3,
    frac_reward_zero_std: 0.2,
    'rollout/filter_kept_ratio': 0.8,
    'collapse/regime': 0,
    'collapse_first_turn_sample/mi_seq_share': 0.6 + 0.01 * step,
    'collapse_first_turn_sample/conditional_entropy_est': 1 - step / 100,
    'grad_norm/bucket_1/task': 0.1,
    'grad_norm/bucket_2/task': 0.5,
    'grad_norm/bucket_1/share/task': 0.1,
    'grad_norm/bucket_2/share/task': 0.9,
    'grad_norm/bucket_1/cosine/task': 0.2,
    'grad_norm/bucket_2/cosine/task': 0.9,
    'timing_s/gen': 0.6,
    'timing_s/diagnostics': 0.05,
    'timing_s/adv': 0.05,
    'timing_s/update_actor': 0.4,
    'timing_s/step': 1.1,
    'trainer/idle_ratio': 0.55,
    'rollouter/idle_ratio': 0.45,
    'perf/policy_busy_ratio': 0.9,
    'perf/tokens_per_second': 4000 + step,
    'perf/throughput': 6000,
    'rollouter/agent_wait_s': 0.2,
    'rollouter/environment_wait_s': 0.1,
  };
}

function groupsRow(step: number): GroupsRow {
  const groups = Array.from({ length: 8 }, (_, i) => {
    const std = ((i * 3 + step) % 8) / 10 || ROUNDING;
    return {
      group_id: i,
      tag: 'Lake',
      seed: 100 + i,
      size: 4,
      successes: i % 5,
      mean: 0.3,
      std,
      score: std,
      kept: std > 0.25,
    };
  });
  return { step, score: 'reward_std', strategy: 'top_p', groups };
}

function writeEpisodes(
  folder: string,
  kind: 'train' | 'validation',
  step: number,
  run: SampleRun,
  size: number,
): void {
  const { groups = 4 } = run;
  const episodes = Array.from({ length: groups * size }, (_, i) =>
    sampleEpisode(Math.floor(i / size), i % size, kind, run),
  );
  const file = join(folder, 'trajectories', `${kind}-${String(step).padStart(6, '0')}.jsonl`);
  writeFileSync(file, episodes.map(episode => `${JSON.stringify(episode)}\n`).join(''));
}

function sampleEpisode(
  group: number,
  member: number,
  kind: string,
  { turns = 3, tokens = 60 }: SampleRun,
): TrajectoryRecord {
  const perTurn = Math.floor(tokens / turns);
  const prompt = Math.max(1, Math.floor(perTurn / 3));
  const success = (group + member) % 2 === 0;
  const length = turns * perTurn;
  const mask = Array.from({ length }, (_, t) => (t % perTurn >= prompt ? 1 : 0));
  const known = (value: (t: number) => number) => mask.map((on, t) => (on ? value(t) : 0));
  const sample: SampleRecord = {
    token_ids: mask.map((_, t) => t % WORDS.length),
    mask,
    log_probs: known(t => -((t % 7) / 3)),
    versions: known(() => 3),
    entropies: known(t => (t % 5) / 4),
    ...(kind === 'train'
      ? {
          advantages: known(t => (success ? 1 : -1) * ((t % 3) + 0.5)),
          returns: known(() => (success ? 1 : 0)),
          values: known(() => 0.4),
          reference_log_probs: known(t => -(((t + 1) % 7) / 3)),
          top_logprobs: mask.map((on, t) =>
            on ? [t % WORDS.length, -((t % 7) / 3), (t + 1) % WORDS.length, -1] : 0,
          ),
        }
      : {}),
  };
  return {
    episode_id: `Lake/${100 + group}/${group}.${member}`,
    env_id: 'FrozenLake-v0',
    tag: 'Lake',
    group_id: group,
    member,
    seed: 100 + group,
    server: 'http://127.0.0.1:8080',
    success,
    terminated: true,
    truncated: !success,
    ended_by: success ? 'goal' : group % 2 === 0 ? 'hole' : 'max_turns',
    return: success ? 1 : -0.1,
    ...(kind === 'train'
      ? { filter: { score: group / 10, std: group / 10 || ROUNDING, kept: group > 0 } }
      : {}),
    turns: Array.from({ length: turns }, (_, turn) => ({
      state: GRID.join('\n'),
      structured: { player: [turn % 4, 0], grid: GRID },
      actions_left: 10 - turn,
      actions: turn === 1 && !success ? [] : ['Down'],
      reward: 0,
      penalty: turn === 1 && !success ? -0.1 : 0,
      rewards: { dry_feet: success || turn === 0 ? 1 : 0 },
      info: { action_is_valid: true },
      llm_response: 'Down',
      llm_raw_response: `<think> step ${turn} of a quiet walk</think> Down`,
      tokens: [turn * perTurn + prompt, (turn + 1) * perTurn],
      sample: 0,
    })),
    final_state: GRID.join('\n'),
    final_structured: { player: [3, 3], grid: GRID },
    samples: [sample],
  };
}
