import { TensorAlgebra } from './algebra.ts';
import type { PagedAttentionAttributes } from './operations/attention/paged-attention.ts';
import type { Tensor } from './tensor.ts';

export type { DType, Graph, Shape, Tensor, TypedArray } from './tensor.ts';
export { GraphError } from './tensor.ts';

export interface AttentionOptions {
  /** Query t sees keys 0 … t; off when absent. */
  readonly causal?: boolean;
  /** 1/√size when absent. */
  readonly scale?: number;
  /** Added to the scores, [batch or 1, 1, queries, keys]; gets no gradient. */
  readonly bias?: Tensor;
}

/**
 * Builds a tensor program: the algebra of tensors, and what language models are made of besides. Each method adds a node and
 * returns it.
 *
 * @example
 * const g = new GraphBuilder();
 * const x = g.input('x', 'float32', [4, 3]);
 * const w = g.parameter('w', [3, 2]);
 * const loss = g.mean(g.mul(g.matmul(x, w), g.matmul(x, w)));
 * g.output('loss', loss);
 * g.output('w.grad', gradients(g, loss, [w])[0]);
 * const graph = g.build();
 */
export class GraphBuilder extends TensorAlgebra {
  /** Over the last axis. */
  softmax(x: Tensor): Tensor {
    return this.apply('softmax', [x]);
  }

  /** Over the last axis. */
  logSoftmax(x: Tensor): Tensor {
    return this.apply('logSoftmax', [x]);
  }

  /** log Σ exp over the last axis, which goes away unless kept. */
  logSumExp(x: Tensor, keepDims = false): Tensor {
    const largest = this.stopGradient(this.max(x, [-1], true));
    const total = this.log(this.sum(this.exp(this.sub(x, largest)), [-1], true));
    const result = this.add(total, largest);
    return keepDims ? result : this.reshape(result, x.shape.slice(0, -1));
  }

  /** Rows of axis 0: table [n, ...rest], ids [...] → [...ids, ...rest]. */
  gather(table: Tensor, ids: Tensor): Tensor {
    return this.apply('gather', [table, ids]);
  }

  /**
   * Rows x [n, ...rest] at other places: ids [m] → [m, ...rest]. `inverse` [n] says at which of the ids each row stands, for the
   * gradient, which no other id may have one of.
   */
  rearrange(x: Tensor, ids: Tensor, inverse: Tensor): Tensor {
    return this.apply('gather', [x, ids, inverse]);
  }

  /** updates [...ids, ...rest], ids [...] → [rows, ...rest], updates of one id added up. */
  scatterAddRows(updates: Tensor, ids: Tensor, rows: number): Tensor {
    return this.apply('scatterAddRows', [updates, ids], { rows });
  }

  /** x [..., v], ids [...] → [...], the entry of the last axis that the id names. */
  takeLast(x: Tensor, ids: Tensor): Tensor {
    return this.apply('takeLast', [x, ids]);
  }

  /** values [...], ids [...] → [..., width], zero but at the ids. */
  putLast(values: Tensor, ids: Tensor, width: number): Tensor {
    return this.apply('putLast', [values, ids], { width });
  }

  /** x / √(mean(x²) + ε) · weight over the last axis. */
  rmsNorm(x: Tensor, weight: Tensor, epsilon: number): Tensor {
    return this.mul(this.rmsNormalize(x, epsilon), weight);
  }

  /** x / √(mean(x²) + ε) over the last axis. */
  rmsNormalize(x: Tensor, epsilon: number): Tensor {
    return this.apply('rmsNormalize', [x], { epsilon });
  }

  /** 1 / √(mean(x²) + ε) over the last axis, kept as 1. */
  inverseRms(x: Tensor, epsilon: number): Tensor {
    return this.apply('inverseRms', [x], { epsilon });
  }

  /** Half-split rotary embedding: x [batch, time, heads, size], cos and sin [batch, time, size/2]. */
  rope(x: Tensor, cos: Tensor, sin: Tensor): Tensor {
    return this.apply('rope', [x, cos, sin]);
  }

  /**
   * softmax(scale · q kᵀ + bias) v: q [batch, queries, heads, size], k and v [batch, keys, keyHeads, size] with
   * keyHeads dividing heads; the result has the shape of q.
   */
  attention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions = {}): Tensor {
    const { causal = false, scale = 1 / Math.sqrt(q.shape[q.shape.length - 1]), bias } = options;
    return this.apply('attention', bias === undefined ? [q, k, v] : [q, k, v, bias], { causal, scale });
  }

  /**
   * Draws a token of each row of logits [rows, width], for runtimes with memory of their own: [rows, 3] with token, weight and
   * sum of weights.
   * @param settings [rows, 4]: 1 / temperature, top-k, top-p, a uniform number (below 0: greedy)
   */
  draw(logits: Tensor, settings: Tensor): Tensor {
    return this.apply('draw', [logits, settings]);
  }

  /** table [n, ...rest] with the rows at `places` [m] replaced by `rows` [m, ...rest]; for runtimes with memory of their own. */
  putRows(table: Tensor, rows: Tensor, places: Tensor): Tensor {
    return this.apply('putRows', [table, rows, places]);
  }

  /**
   * Attention of rows over keys and values in pages, for runtimes with memory of their own: q [rows, heads, size], k and v
   * [places, keyHeads, size]; `lists` float32 [slots, pages], `slots` and `positions` int32 [rows].
   */
  pagedAttention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    {
      lists,
      slots,
      positions,
    }: { readonly lists: Tensor; readonly slots: Tensor; readonly positions: Tensor },
    attributes: PagedAttentionAttributes,
  ): Tensor {
    return this.apply('pagedAttention', [q, k, v, lists, slots, positions], attributes);
  }
}
