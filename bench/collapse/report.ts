import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { mean } from '../../trainer/algorithms/statistics.ts';

/** Names of the measurements in a run's metrics. */
const MEASURED = {
  share: 'collapse_first_turn_sample/mi_seq_share',
  club: 'collapse_first_turn_sample/mi_club_seq_estimate',
  retrieval: 'collapse_first_turn_sample/retrieval_above_chance',
  entropy: 'collapse_first_turn_sample/conditional_entropy_est',
  valid: 'collapse/first_turn_valid_rate',
  spread: 'rollout/in_group_std',
  success: 'train/success',
} as const;
type Name = keyof typeof MEASURED;
type Measurement = { readonly step: number } & { readonly [name in Name]: number };

interface ReadThought {
  readonly prompt: string;
  readonly response: string;
}

/** Measurements and responses of a run. */
export interface Outcome {
  readonly name: string;
  readonly iterations: number;
  readonly measurements: readonly Measurement[];
  /** Responses of the first and of the last iteration that the run kept. */
  readonly early: readonly ReadThought[];
  readonly late: readonly ReadThought[];
}

/** Responses of an iteration that are kept. */
const RESPONSES = 4;
const NAMES = Object.keys(MEASURED) as Name[];

export function outcomeOf(run: string, name: string): Outcome {
  const rows = jsonLines(join(run, 'metrics.jsonl')) as readonly { readonly [name: string]: number }[];
  const trajectories = readdirSync(join(run, 'trajectories')).sort();
  const responses = (file: string) => {
    const episodes = jsonLines(join(run, 'trajectories', file)) as readonly {
      readonly group_id: number;
      readonly turns: readonly { readonly state: string; readonly llm_raw_response: string }[];
    }[];
    const ofGroups = new Map(episodes.map(({ group_id, turns }) => [group_id, turns[0]]));
    return [...ofGroups.values()]
      .slice(0, RESPONSES)
      .map(({ state, llm_raw_response }) => ({ prompt: state, response: llm_raw_response }));
  };
  return {
    name,
    iterations: rows.at(-1)?.step ?? 0,
    measurements: rows
      .filter(row => MEASURED.share in row)
      .map(row => ({
        step: row.step,
        ...(Object.fromEntries(NAMES.map(key => [key, rounded(row[MEASURED[key]])])) as Record<Name, number>),
      })),
    early: responses(trajectories[0]),
    late: responses(trajectories.at(-1)!),
  };
}

/** The page of the runs. */
export function collapsePage(runs: readonly Outcome[]): string {
  return [
    '# Thoughts where rewards are noise',
    '',
    '_Reference._ Written from [its data](./data/collapse.json) by',
    '',
    '```sh',
    'npm run bench:collapse -- FOLDER',
    '```',
    '',
    'Bandit with rewards that hardly depend on the arm: 0.45 for sure, or 1 in half of the pulls. A policy of 0.1 M weights learns from 1,000 random pulls to think: both arms, then six of 24 names at random. Then GRPO, 16 groups of 4 an iteration, with an entropy bonus on all tokens of 0.05 (high) or 0.001 (low), and with the rollout filter (top-p 0.9 of the spread). RAGEN V2’s paper expects the information to fall while the entropy stays, and the filter to prevent that.',
    '',
    'First measurement → mean of the last third: [`mi_seq_share`](../reference/diagnostics.md#collapse-metrics), `mi_club_seq_estimate` (nats), `retrieval_above_chance`, `conditional_entropy_est` (nats per token), valid thoughts, spread of returns in a group, and pulls of the better arm:',
    '',
    '| variant | iterations | MI share | CLUB | retrieval | entropy | valid | spread | success |',
    '|---|---|---|---|---|---|---|---|---|',
    ...runs.map(({ name, iterations, measurements }) => {
      const late = measurements.slice(-Math.max(1, Math.floor(measurements.length / 3)));
      const cells = NAMES.map(
        key => `${measurements[0][key].toFixed(2)} → ${mean(late.map(one => one[key])).toFixed(2)}`,
      );
      return `| ${[name, iterations, ...cells].join(' | ')} |`;
    }),
    '',
    'Responses of the first variant, of the first and the last iteration that it kept:',
    '',
    '```text',
    ...[runs[0].early, runs[0].late].flatMap(kept =>
      kept.slice(0, 2).map(({ prompt, response }) => `${prompt}: ${response.replaceAll(/\s+/g, ' ')}`),
    ),
    '```',
    '',
  ].join('\n');
}

function rounded(x: number): number {
  return Number(x.toPrecision(4));
}

function jsonLines(file: string): unknown[] {
  return readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map(line => JSON.parse(line));
}
