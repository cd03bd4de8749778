import { abs } from './abs.ts';
import { add } from './add.ts';
import { attention } from './attention.ts';
import { attentionGradient } from './attention-gradient.ts';
import { broadcastTo } from './broadcast-to.ts';
import { cast } from './cast.ts';
import { concat } from './concat.ts';
import { cos } from './cos.ts';
import { div } from './div.ts';
import { draw } from './draw.ts';
import { equal } from './equal.ts';
import { exp } from './exp.ts';
import { gather } from './gather.ts';
import { greater } from './greater.ts';
import { inverseRms } from './inverse-rms.ts';
import { less } from './less.ts';
import { log } from './log.ts';
import { logSoftmax } from './log-softmax.ts';
import { logicalAnd } from './logical-and.ts';
import { logicalNot } from './logical-not.ts';
import { logicalOr } from './logical-or.ts';
import { matmul } from './matmul.ts';
import { max } from './max.ts';
import { maximum } from './maximum.ts';
import { minimum } from './minimum.ts';
import { mul } from './mul.ts';
import { neg } from './neg.ts';
import type { Operation } from './operation.ts';
import { pad } from './pad.ts';
import { pagedAttention } from './paged-attention.ts';
import { putLast } from './put-last.ts';
import { putRows } from './put-rows.ts';
import { reciprocal } from './reciprocal.ts';
import { relu } from './relu.ts';
import { reshape } from './reshape.ts';
import { rmsNormalize } from './rms-normalize.ts';
import { rope } from './rope.ts';
import { scatterAddRows } from './scatter-add-rows.ts';
import { sigmoid } from './sigmoid.ts';
import { sign } from './sign.ts';
import { silu } from './silu.ts';
import { sin } from './sin.ts';
import { slice } from './slice.ts';
import { softmax } from './softmax.ts';
import { sqrt } from './sqrt.ts';
import { stopGradient } from './stop-gradient.ts';
import { sub } from './sub.ts';
import { sum } from './sum.ts';
import { takeLast } from './take-last.ts';
import { tanh } from './tanh.ts';
import { transpose } from './transpose.ts';
import { where } from './where.ts';

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

/** On arrays that stay on a device: runtimes with memory of their own lower these, too. */
const deviceList = [putRows, pagedAttention, draw] as readonly Operation[];

/**
 * Every primitive by name. A runtime lowers each of these but those for arrays on a device, which it may lack; the contract
 * suite runs each that a runtime has.
 */
export const operations: ReadonlyMap<string, Operation> = new Map(
  [...list, ...deviceList].map(operation => [operation.name, operation]),
);
