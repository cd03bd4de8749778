import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseOverride } from '../../../shared/config.ts';
import { shellWord } from '../../../shared/shell-word.ts';
import { writeAtomically } from '../../tracking/atomic-file.ts';
import type { TrainerState } from '../../training/run-folder/checkpoint.ts';
import type { RunFolder } from '../../training/run-folder/run-folder.ts';
import type { EvaluationRow } from './evaluation.ts';

const HIDDEN = '***';

/** The record of an evaluation. */
export interface Evaluation {
  readonly command: string;
  readonly seconds: number;
  readonly rows: readonly EvaluationRow[];
  /** State of training of the run's own policies, by their names in the rows. */
  readonly trained: ReadonlyMap<string, TrainerState>;
}

/** Keeps an evaluation in the run's folder, where the leaderboard finds it. */
export function saveEvaluation(run: RunFolder, { command, seconds, rows, trained }: Evaluation): void {
  const date = new Date().toISOString();
  const document = {
    date,
    command,
    seconds,
    rows: rows.map(row => {
      const state = trained.get(row.policy);
      if (!state) return row;
      const { step, sampledTokens, seconds } = state;
      return { ...row, trained: { step, sampled_tokens: sampledTokens, seconds } };
    }),
  };
  mkdirSync(run.evaluations, { recursive: true });
  const file = join(run.evaluations, `${date.replaceAll(':', '-')}.json`);
  writeAtomically(file, `${JSON.stringify(document, null, 1)}\n`);
}

/** The command line as a shell takes it: all that the result depends on, but no token of a server. */
export function evaluateCommand(
  target: string,
  overrides: readonly string[],
  { policy, attempts }: { readonly policy: readonly string[]; readonly attempts: number },
): string {
  return [
    'evaluate',
    target,
    ...overrides.map(withoutTokens),
    ...policy.flatMap(name => ['--policy', name]),
    ...(attempts > 1 ? ['--attempts', String(attempts)] : []),
  ]
    .map(shellWord)
    .join(' ');
}

/** An override without tokens of servers: pages show the command to everyone who sees the run. */
function withoutTokens(override: string): string {
  const { path, value } = parseOverride(override);
  if (path[0] !== 'servers') return override;
  const shown =
    path.at(-1) === 'token'
      ? HIDDEN
      : JSON.stringify(value, (key, item) => (key === 'token' && item !== null ? HIDDEN : item));
  return `${path.join('.')}=${shown}`;
}
