import { erf } from './activation/erf.ts';
import { relu } from './activation/relu.ts';
import { sigmoid } from './activation/sigmoid.ts';
import { silu } from './activation/silu.ts';
import { tanh } from './activation/tanh.ts';
import { abs } from './arithmetic/abs.ts';
import { add } from './arithmetic/add.ts';
import { cos } from './arithmetic/cos.ts';
import { div } from './arithmetic/div.ts';
import { exp } from './arithmetic/exp.ts';
import { log } from './arithmetic/log.ts';
import { maximum } from './arithmetic/maximum.ts';
import { minimum } from './arithmetic/minimum.ts';
import { mul } from './arithmetic/mul.ts';
import { neg } from './arithmetic/neg.ts';
import { reciprocal } from './arithmetic/reciprocal.ts';
import { sign } from './arithmetic/sign.ts';
import { sin } from './arithmetic/sin.ts';
import { sqrt } from './arithmetic/sqrt.ts';
import { sub } from './arithmetic/sub.ts';
import { attention } from './attention/attention.ts';
import { attentionGradient } from './attention/attention-gradient.ts';
import { rope } from './attention/rope.ts';
import { pagedAttentionOperation } from './device/paged-attention.ts';
import { putRowsOperation } from './device/put-rows.ts';
import { sampleOperation } from './device/sample.ts';
import { equal } from './logic/equal.ts';
import { greater } from './logic/greater.ts';
import { less } from './logic/less.ts';
import { logicalAnd } from './logic/logical-and.ts';
import { logicalNot } from './logic/logical-not.ts';
import { logicalOr } from './logic/logical-or.ts';
import { where } from './logic/where.ts';
import { broadcastTo } from './movement/broadcast-to.ts';
import { cast } from './movement/cast.ts';
import { concat } from './movement/concat.ts';
import { gather } from './movement/gather.ts';
import { pad } from './movement/pad.ts';
import { putLast } from './movement/put-last.ts';
import { reshape } from './movement/reshape.ts';
import { scatterAddRows } from './movement/scatter-add-rows.ts';
import { slice } from './movement/slice.ts';
import { stopGradient } from './movement/stop-gradient.ts';
import { takeLast } from './movement/take-last.ts';
import { transpose } from './movement/transpose.ts';
import type { Operation } from './operation.ts';
import { quantizedMatmul } from './quantized/quantized-matmul.ts';
import { inverseRms } from './reduction/inverse-rms.ts';
import { logSoftmax } from './reduction/log-softmax.ts';
import { matmul } from './reduction/matmul.ts';
import { max } from './reduction/max.ts';
import { rmsNormalize } from './reduction/rms-normalize.ts';
import { softmax } from './reduction/softmax.ts';
import { sum } from './reduction/sum.ts';

const list = [
  neg,
  exp,
  log,
  sqrt,
  reciprocal,
  abs,
  sign,
  sigmoid,
  silu,
  tanh,
  erf,
  cos,
  sin,
  relu,
  add,
  sub,
  mul,
  div,
  maximum,
  minimum,
  less,
  greater,
  equal,
  logicalAnd,
  logicalOr,
  logicalNot,
  where,
  cast,
  stopGradient,
  matmul,
  quantizedMatmul,
  reshape,
  transpose,
  broadcastTo,
  slice,
  pad,
  concat,
  sum,
  max,
  softmax,
  logSoftmax,
  gather,
  scatterAddRows,
  takeLast,
  putLast,
  rmsNormalize,
  inverseRms,
  rope,
  attention,
  attentionGradient,
] as readonly Operation[];

/** Operations on arrays that stay on a device; runtimes with separate memory lower these, too. */
const deviceList = [putRowsOperation, pagedAttentionOperation, sampleOperation] as readonly Operation[];

/**
 * Every primitive by name. A runtime lowers each of these but those for arrays on a device, which it may lack; the contract
 * suite runs each that a runtime has.
 */
export const operations: ReadonlyMap<string, Operation> = new Map(
  [...list, ...deviceList].map(operation => [operation.name, operation]),
);
