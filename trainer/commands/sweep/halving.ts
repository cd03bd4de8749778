import { mean } from '../../algorithms/statistics.ts';
import type { ValidationRecord } from '../../training/run-folder/checkpoint.ts';
import type { Halving } from './sweep-plan.ts';

/** Iterations at which runs are compared, ascending; the last round goes to the end and is not among them. */
export function halvingRounds({ first_steps, factor }: Halving, steps: number): number[] {
  const rounds: number[] = [];
  for (let step = first_steps; step < steps; step *= factor) rounds.push(step);
  return rounds;
}

/** A run at the end of a round. */
export interface RoundResult {
  readonly variant: string;
  /** The monitored metric there, or where the run ended before it; undefined for a run that failed. */
  readonly value: number | undefined;
}

/** The metric of a run at the end of a round: that of its last validation where it is over sooner, such as at its target. */
export function roundValue(
  validations: readonly ValidationRecord[],
  { step, metric, isOver }: { readonly step: number; readonly metric: string; readonly isOver: boolean },
): number | undefined {
  const there = validations.find(record => record.step === step);
  const last = isOver ? validations.filter(record => record.step < step).at(-1) : undefined;
  return (there ?? last)?.metrics[metric];
}

/**
 * The variants that go on (successive halving, Jamieson and Talwalkar, 2016): one in `factor`, at least one, by the mean of the
 * metric over their runs; of equals the first. A variant with a run that failed is behind all others.
 */
export function survivors(results: readonly RoundResult[], factor: number, mode: 'max' | 'min'): string[] {
  const variants = [...new Set(results.map(({ variant }) => variant))];
  const scores = variants.map(variant => {
    const values = results.filter(result => result.variant === variant).map(({ value }) => value);
    const known = values.filter(value => value !== undefined);
    if (known.length < values.length) return Number.NEGATIVE_INFINITY;
    return mode === 'max' ? mean(known) : -mean(known);
  });
  const order = variants.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);
  const kept = new Set(order.slice(0, Math.max(1, Math.floor(variants.length / factor))));
  return variants.filter((_, i) => kept.has(i));
}
