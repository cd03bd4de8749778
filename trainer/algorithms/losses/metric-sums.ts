import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';
import type { TokenMetric } from './policy-loss.ts';

/** Extreme value over no tokens: large, and finite in float32. */
const NOTHING = 3e38;

/**
 * The nodes of a token metric under names that can be summed over micro-batches and workers: `NAME#sum` and
 * `NAME#count` for a mean, `NAME#max` or `NAME#min` for an extreme.
 * @param mask bool, true on trained tokens
 */
export function tokenMetricNodes(
  g: GraphBuilder,
  name: string,
  { value, where, by }: TokenMetric,
  mask: Tensor,
): readonly (readonly [name: string, node: Tensor])[] {
  const counted = where === undefined ? mask : g.and(mask, where);
  if (by === 'mean') {
    return [
      [`${name}#sum`, g.sum(g.where(counted, value, 0))],
      [`${name}#count`, g.sum(g.where(counted, 1, 0))],
    ];
  }
  const sign = by === 'max' ? 1 : -1;
  const largest = g.max(g.where(counted, g.mul(value, sign), -NOTHING));
  return [[`${name}#${by}`, g.mul(largest, sign)]];
}

/** Adds the metrics of another part of an optimizer step: sums are added, extremes compared. */
export function addMetrics(total: Record<string, number>, part: Readonly<Record<string, number>>): void {
  for (const [name, value] of Object.entries(part)) {
    const known = total[name];
    if (known === undefined) total[name] = value;
    else if (name.endsWith('#max')) total[name] = Math.max(known, value);
    else if (name.endsWith('#min')) total[name] = Math.min(known, value);
    else total[name] = known + value;
  }
}

/** The metrics of a whole step by their logged names; a mean or an extreme over no token is absent. */
export function finishMetrics(total: Readonly<Record<string, number>>): Record<string, number> {
  const finished: Record<string, number> = {};
  for (const [key, value] of Object.entries(total)) {
    const [name, kind] = key.split('#');
    if (kind === undefined) finished[name] = value;
    else if (kind === 'sum' && total[`${name}#count`] > 0) finished[name] = value / total[`${name}#count`];
    else if ((kind === 'max' || kind === 'min') && Math.abs(value) < NOTHING / 2) finished[name] = value;
  }
  return finished;
}
