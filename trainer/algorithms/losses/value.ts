import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';

/** Input of the value term; all token tensors are 0 on masked tokens. */
export interface ValueLossInput {
  readonly values: Tensor;
  readonly returns: Tensor;
  /** Absent without clipping. */
  readonly clip?: { readonly oldValues: Tensor; readonly move: Tensor };
}

/**
 * Clipped value regression, as squares per token: max((v − R)², (clip(v, v_old ± ε) − R)²); without a clip (v − R)². Half of
 * them is the loss. Where the clip decides there is no gradient.
 *
 * Source: Schulman et al., 2017 (baselines' implementation); verl 0.6.1 `compute_value_loss`.
 */
export function valueSquares(
  g: GraphBuilder,
  { values, returns, clip }: ValueLossInput,
): { readonly squares: Tensor; readonly clipped?: Tensor } {
  const error = g.sub(values, returns);
  const squares = g.mul(error, error);
  if (clip === undefined) return { squares };
  const held = g.stopGradient(values);
  const bounded = g.minimum(
    g.maximum(held, g.sub(clip.oldValues, clip.move)),
    g.add(clip.oldValues, clip.move),
  );
  const boundedError = g.sub(bounded, returns);
  const boundedSquares = g.mul(boundedError, boundedError);
  const clipped = g.greater(boundedSquares, squares);
  return { squares: g.where(clipped, boundedSquares, squares), clipped };
}
