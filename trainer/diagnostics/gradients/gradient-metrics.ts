import type { LossCounts } from '../../algorithms/losses/aggregation.ts';
import type { Aggregation } from '../../algorithms/losses/settings.ts';
import { LOSS_COMPONENTS, type LossComponent } from '../../algorithms/losses/update-loss.ts';
import type { GradientDecomposition } from '../../policy/policy.ts';

/** A pass of the decomposition: which bucket it belongs to and what its loss was averaged over. */
export interface MeasuredCell {
  readonly bucket: number;
  readonly counts: LossCounts;
  /** True for a single group, with a gradient that counts for the signal-to-noise ratio. */
  readonly single: boolean;
}

/** A weighted sum of measured gradients, by their numbers. */
type Combination = ReadonlyMap<number, number>;

const LOSS_NAMES: { readonly [component in LossComponent]: string } = {
  task: 'policy',
  entropy: 'entropy',
  kl: 'kl',
};

/**
 * What the gradients of cells say about those of buckets and of all. A loss is a sum over tokens divided by counts, so that the
 * gradient of a union of cells is the sum of theirs by their shares of its counts: nothing is passed twice.
 */
export class GradientGeometry {
  readonly #cells: readonly MeasuredCell[];
  readonly #measured: GradientDecomposition;
  readonly #aggregation: Aggregation;

  /** @param measured of the cells, in their order */
  constructor(cells: readonly MeasuredCell[], measured: GradientDecomposition, aggregation: Aggregation) {
    this.#cells = cells;
    this.#measured = measured;
    this.#aggregation = aggregation;
  }

  /**
   * Metrics of a bucket's gradients, without a prefix; of all groups where it is undefined.
   *
   * `<component>` is the global L2 norm of the gradient of that component of the loss, as if the bucket were the whole
   * mini-batch; with `per_sample/<component>` and `per_token/<component>` (the norm divided by counts) and `loss/<part>`.
   * A component that is turned off has 0.
   *
   * - `task_to_reg` ‖g^task‖ / ‖g^entropy + g^kl‖
   * - `share/<component>` ⟨w_b g_b, g_all⟩ / ‖g_all‖²; sums to 1 over buckets, negative where the bucket pulls the other way
   * - `cosine/<component>` cos(g_b, g_all)
   * - `snr` ‖mean of the groups' task gradients‖² / their variance, of two measured groups at least
   *
   * What would divide by 0 is left out.
   * @param sizes sequences and trained tokens of the bucket
   */
  metrics(
    bucket: number | undefined,
    sizes: { readonly sequences: number; readonly tokens: number },
  ): Record<string, number> {
    const members = this.#members(bucket);
    const metrics: Record<string, number> = {};
    let total = 0;
    for (const component of LOSS_COMPONENTS) {
      const own = this.#combined(component, members);
      const norm = this.#norm(own);
      const loss = [...own].reduce((sum, [i, weight]) => sum + weight * this.#measured.gradients[i].loss, 0);
      total += loss;
      metrics[component] = norm;
      metrics[`per_sample/${component}`] = norm / sizes.sequences;
      metrics[`per_token/${component}`] = norm / sizes.tokens;
      metrics[`loss/${LOSS_NAMES[component]}`] = loss;
      if (bucket !== undefined) Object.assign(metrics, this.#againstAll(component, members, own));
    }
    metrics['loss/total'] = total;
    const regularizer = this.#norm(
      new Map([...this.#combined('entropy', members), ...this.#combined('kl', members)]),
    );
    if (regularizer > 0) metrics.task_to_reg = metrics.task / regularizer;
    return { ...metrics, ...this.#signalToNoise(members) };
  }

  #againstAll(
    component: LossComponent,
    members: readonly number[],
    own: Combination,
  ): Record<string, number> {
    const everyone = this.#members(undefined);
    const all = this.#combined(component, everyone);
    const squared = this.#inner(all, all);
    if (!(squared > 0)) return {};
    const inner = this.#inner(own, all);
    const weight = this.#count(component, members) / this.#count(component, everyone);
    const norm = this.#norm(own);
    return {
      [`share/${component}`]: (weight * inner) / squared,
      ...(norm > 0 ? { [`cosine/${component}`]: inner / (norm * Math.sqrt(squared)) } : {}),
    };
  }

  #signalToNoise(members: readonly number[]): Record<string, number> {
    const groups = members.filter(cell => this.#cells[cell].single);
    if (groups.length < 2) return {};
    const gradients = groups.map(cell => this.#index('task', cell));
    const average: Combination = new Map(gradients.map(index => [index, 1 / groups.length]));
    const signal = this.#inner(average, average);
    const squares = gradients.reduce((sum, index) => sum + this.#product(index, index), 0);
    const noise = (squares - groups.length * signal) / (groups.length - 1);
    return noise > 0 ? { snr: signal / noise } : {};
  }

  #members(bucket: number | undefined): number[] {
    return this.#cells.flatMap((cell, i) => (bucket === undefined || cell.bucket === bucket ? [i] : []));
  }

  /** The gradient of a union of cells; empty where the component is off. */
  #combined(component: LossComponent, members: readonly number[]): Combination {
    const whole = this.#count(component, members);
    return new Map(
      members.flatMap(cell => {
        const index = this.#index(component, cell);
        return index === -1 || whole === 0 ? [] : [[index, this.#count(component, [cell]) / whole] as const];
      }),
    );
  }

  /** Divisor of the component's loss over these cells. */
  #count(component: LossComponent, members: readonly number[]): number {
    const byTokens = this.#aggregation === 'token_mean';
    return members.reduce((sum, cell) => {
      const { tokens, sequences, entropyTokens, entropySequences } = this.#cells[cell].counts;
      if (component === 'entropy') return sum + (byTokens ? entropyTokens : entropySequences);
      return sum + (byTokens ? tokens : sequences);
    }, 0);
  }

  #index(component: LossComponent, cell: number): number {
    return this.#measured.gradients.findIndex(
      gradient => gradient.batch === cell && gradient.component === component,
    );
  }

  #norm(combination: Combination): number {
    return Math.sqrt(Math.max(0, this.#inner(combination, combination)));
  }

  #inner(a: Combination, b: Combination): number {
    let sum = 0;
    for (const [i, x] of a) for (const [j, y] of b) sum += x * y * this.#product(i, j);
    return sum;
  }

  #product(i: number, j: number): number {
    return this.#measured.products[i * this.#measured.gradients.length + j];
  }
}
