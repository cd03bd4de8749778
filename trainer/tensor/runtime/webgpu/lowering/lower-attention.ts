import type { AttentionGradientAttributes } from '../../../graph/operations/attention.ts';
import { type AttentionAttributes, attentionSizes } from '../../../graph/operations/attention.ts';
import { sizeOf, type Tensor } from '../../../graph/tensor.ts';
import { reduceMiddle } from '../kernels/reduce.ts';
import { rowDots } from '../kernels/rows.ts';
import { type AttentionOperands, attend, keyValueGradients, queryGradient } from '../shaders/attention.ts';
import type { ProgramBuilder } from './program.ts';
import type { DeviceValue } from './step.ts';

export function lowerAttention(builder: ProgramBuilder, node: Tensor): void {
  const attributes = node.attributes as AttentionAttributes;
  const operands = operandsOf(builder, node.inputs.slice(0, 3), node.inputs[3]);
  const logSums = logSumsOf(builder, node);
  builder.add(attend(operands, attributes, builder.place(node), logSums));
}

/** All wanted gradients of one attention at once. */
export function lowerAttentionGradient(builder: ProgramBuilder, node: Tensor): void {
  const [q, k, v, forward, upstream, bias] = node.inputs;
  const { causal, scale } = node.attributes as AttentionGradientAttributes;
  const operands = operandsOf(builder, [q, k, v], bias);
  const { batch, keys, heads, keyHeads, size } = attentionSizes([q, k, v], { causal, scale });
  const dots = builder.allocate(sizeOf(q.shape) / size);
  builder.add(...rowDots(builder.valueOf(upstream), builder.valueOf(forward), size, dots, builder));
  const above = {
    upstream: { value: builder.valueOf(upstream), shape: upstream.shape },
    logSums: logSumsOf(builder, forward),
    dots,
  };
  const wanted = new Map(
    builder
      .usersOf(forward)
      .filter(user => user.operation === 'attentionGradient' && user.inputs[4] === upstream)
      .map(user => [user.attributes.wrt as AttentionGradientAttributes['wrt'], user]),
  );
  const place = (wrt: AttentionGradientAttributes['wrt'], like: Tensor): DeviceValue => {
    const tensor = wanted.get(wrt);
    return tensor === undefined ? builder.allocate(sizeOf(like.shape)) : builder.place(tensor);
  };
  if (wanted.has('query')) {
    builder.add(queryGradient(operands, above, { causal, scale }, place('query', q)));
  }
  if (wanted.has('key') || wanted.has('value')) {
    const results = [place('key', k), place('value', v)];
    const apart =
      heads === keyHeads ? results : results.map(() => builder.allocate(batch * keys * heads * size));
    builder.add(keyValueGradients(operands, above, { causal, scale }, apart[0], apart[1]));
    if (apart !== results) {
      const cut = { outer: batch * keys * keyHeads, middle: heads / keyHeads, inner: size };
      results.forEach((result, i) => {
        builder.add(...reduceMiddle('sum', apart[i], cut, result, builder));
      });
    }
  }
}

/** log Σ exp of the scores of an attention's queries, which its gradients need again. */
function logSumsOf(builder: ProgramBuilder, forward: Tensor): DeviceValue {
  const [batch, queries, heads] = forward.shape;
  return builder.share(`log-sums ${forward.id}`, () => builder.allocate(batch * queries * heads));
}

function operandsOf(
  builder: ProgramBuilder,
  inputs: readonly Tensor[],
  bias: Tensor | undefined,
): AttentionOperands {
  const [q, k, v] = inputs.map(input => ({ value: builder.valueOf(input), shape: input.shape }));
  const added =
    bias === undefined
      ? { value: builder.scalar(0), shape: [1, 1, 1, 1] }
      : { value: builder.valueOf(bias), shape: bias.shape };
  return { q, k, v, bias: added };
}
