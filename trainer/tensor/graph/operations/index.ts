import { attention, attentionGradient, rope } from './attention.ts';
import { blockMatmul, blockRows } from './blocks.ts';
import { pagedAttentionOperation, putRowsOperation, sampleOperation } from './device.ts';
import {
  abs,
  cos,
  erf,
  exp,
  log,
  neg,
  reciprocal,
  relu,
  sigmoid,
  sign,
  silu,
  sin,
  sqrt,
  tanh,
} from './functions.ts';
import {
  broadcastTo,
  cast,
  concat,
  gather,
  pad,
  putLast,
  reshape,
  scatterAddRows,
  slice,
  stopGradient,
  takeLast,
  transpose,
} from './movement.ts';
import type { Operation } from './operation.ts';
import {
  add,
  div,
  equal,
  greater,
  less,
  logicalAnd,
  logicalNot,
  logicalOr,
  maximum,
  minimum,
  mul,
  sub,
  where,
} from './operators.ts';
import { matmul, quantizedMatmul } from './products.ts';
import { inverseRms, logSoftmax, max, rmsNormalize, softmax, sum } from './reduction.ts';

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
  blockMatmul,
  blockRows,
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

/** Operations on arrays that stay on a device; runtimes with separate memory lower these too. */
const deviceList = [putRowsOperation, pagedAttentionOperation, sampleOperation] as readonly Operation[];

/**
 * Every primitive by name. A runtime lowers all of them, except that it may lack those for arrays on a device. The
 * contract suite runs all that a runtime has.
 */
export const operations: ReadonlyMap<string, Operation> = new Map(
  [...list, ...deviceList].map(operation => [operation.name, operation]),
);
