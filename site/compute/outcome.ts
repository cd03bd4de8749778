import type { ValidationPoint } from '../../shared/run-folder/run-files.ts';

/** The difference between two validations; with intervals it must exceed chance. */
export type Verdict = 'improved' | 'flat' | 'worse';

/** Outcome of a run: the comparison of its first and last validation once it has ended, else its state. */
export type Outcome = Verdict | 'running' | 'stalled' | 'failed' | 'stopped' | 'finished' | 'unknown';
export const OUTCOMES: readonly Outcome[] = [
  'running',
  'improved',
  'flat',
  'worse',
  'stalled',
  'failed',
  'stopped',
  'finished',
  'unknown',
];

/** @returns undefined with fewer than two validations */
export function verdictOf(validations: readonly ValidationPoint[]): Verdict | undefined {
  const first = validations.at(0);
  const last = validations.at(-1);
  if (!first || !last || first === last) return undefined;
  if ((last.low ?? last.success) > first.success) return 'improved';
  return (last.high ?? last.success) < first.success ? 'worse' : 'flat';
}

export function outcomeOf(run: {
  readonly state: Exclude<Outcome, Verdict>;
  readonly validations: readonly ValidationPoint[];
}): Outcome {
  const { state, validations } = run;
  const ended = state === 'finished' || state === 'stopped' || state === 'unknown';
  return (ended ? verdictOf(validations) : undefined) ?? state;
}
