import { TensorAlgebra } from './algebra.ts';
import type { Tensor } from './tensor.ts';

export interface AttentionOptions {
  /** Query t sees keys 0 … t; off when absent. */
  readonly causal?: boolean;
  /** 1/√size when absent. */
  readonly scale?: number;
  /** Added to the scores, [batch or 1, 1, queries, keys]; gets no gradient. */
  readonly bias?: Tensor;
}

/**
 * The algebra of tensors plus the operations of neural networks. Each method adds a node and returns it. Gradient rules
 * see a builder as this class, which does not know the operations; {@link GraphBuilder} adds them.
 */
export class TensorBuilder extends TensorAlgebra {
  /** Over the last axis. */
  softmax(x: Tensor): Tensor {
    return this.apply('softmax', [x]);
  }

  /** Over the last axis. */
  logSoftmax(x: Tensor): Tensor {
    return this.apply('logSoftmax', [x]);
  }

  /** Rows of axis 0: table [n, ...rest], ids [...] → [...ids, ...rest]. */
  gather(table: Tensor, ids: Tensor): Tensor {
    return this.apply('gather', [table, ids]);
  }

  /**
   * Permutes rows x [n, ...rest]: ids [m] → [m, ...rest]. `inverse` [n] gives each row's index among the ids, for the
   * gradient; no other id may have a gradient of that row.
   */
  rearrange(x: Tensor, ids: Tensor, inverse: Tensor): Tensor {
    return this.apply('gather', [x, ids, inverse]);
  }

  /** updates [...ids, ...rest], ids [...] → [rows, ...rest]; updates with the same id are added up. */
  scatterAddRows(updates: Tensor, ids: Tensor, rows: number): Tensor {
    return this.apply('scatterAddRows', [updates, ids], { rows });
  }

  /** x [..., v], ids [...] → [...], the entry of the last axis that the id names. */
  takeLast(x: Tensor, ids: Tensor): Tensor {
    return this.apply('takeLast', [x, ids]);
  }

  /** values [...], ids [...] → [..., width], zero except at the ids. */
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
}
