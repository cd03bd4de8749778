import type { ValidationPoint } from '../../shared/run-folder/run-files.ts';

/** Verdict on two validations: beyond chance where they have intervals. */
export type Verdict = 'improved' | 'flat' | 'worse';

/** Verdict of a run that has ended and was validated twice; else its state. */
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
