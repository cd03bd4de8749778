import type { KernelThread } from '../lowering/gpujs.ts';
import { Kernel } from '../lowering/kernel.ts';
import { inRowSlices } from '../lowering/row-slices.ts';
import type { ScratchSpace } from '../lowering/slices.ts';
import type { DeviceValue, KernelDispatch } from '../lowering/step.ts';

/** Factors that the kernels below take of a step, in the order of their array. */
export const ADAMW_FACTORS = [
  'scale',
  'beta1',
  'rest1',
  'beta2',
  'rest2',
  'keep',
  'stepSize',
  'inverseRoot',
  'epsilon',
] as const;

const firstMoment = new Kernel(
  function firstMoment(this: KernelThread, first: number[], gradient: number[], factors: number[]): number {
    const scaled = gradient[this.thread.x] * factors[0];
    return factors[1] * first[this.thread.x] + factors[2] * scaled;
  },
  ['Array', 'Array', 'Array'],
  { inPlace: 0 },
);

const secondMoment = new Kernel(
  function secondMoment(this: KernelThread, second: number[], gradient: number[], factors: number[]): number {
    const scaled = gradient[this.thread.x] * factors[0];
    return factors[3] * second[this.thread.x] + factors[4] * scaled * scaled;
  },
  ['Array', 'Array', 'Array'],
  { inPlace: 0 },
);

const descend = new Kernel(
  function descend(
    this: KernelThread,
    weight: number[],
    first: number[],
    second: number[],
    factors: number[],
  ): number {
    const denominator = Math.sqrt(second[this.thread.x]) * factors[7] + factors[8];
    return weight[this.thread.x] * factors[5] - (factors[6] * first[this.thread.x]) / denominator;
  },
  ['Array', 'Array', 'Array', 'Array'],
  { inPlace: 0 },
);

/** State that AdamW keeps of a parameter, each array as long as the others. */
export interface AdamwValues {
  readonly weight: DeviceValue;
  readonly gradient: DeviceValue;
  readonly first: DeviceValue;
  readonly second: DeviceValue;
}

/**
 * A step of AdamW (Loshchilov & Hutter, 2019) on one parameter, in float32 as torch.optim.AdamW takes it.
 * @param factors {@link ADAMW_FACTORS}
 */
export function adamw(values: AdamwValues, factors: DeviceValue, scratch: ScratchSpace): KernelDispatch[] {
  const f = { value: factors };
  const { weight, gradient, first, second } = values;
  return [
    ...inPlace(scratch, first, [gradient], (own, [g]) =>
      firstMoment.step([own.length], [{ value: own }, g, f], own),
    ),
    ...inPlace(scratch, second, [gradient], (own, [g]) =>
      secondMoment.step([own.length], [{ value: own }, g, f], own),
    ),
    ...inPlace(scratch, weight, [first, second], (own, [m, v]) =>
      descend.step([own.length], [{ value: own }, m, v, f], own),
    ),
  ];
}

/** A kernel that changes an array element by element, over parts that a shader can be given. */
function inPlace(
  scratch: ScratchSpace,
  changed: DeviceValue,
  others: readonly DeviceValue[],
  make: (changed: DeviceValue, others: readonly { readonly value: DeviceValue }[]) => KernelDispatch,
): KernelDispatch[] {
  const operands = others.map(value => ({ value, width: 1 }));
  return inRowSlices(scratch, changed.length, operands, { value: changed, width: 1 }, (_, own, out) => [
    make(
      out,
      own.map(value => ({ value })),
    ),
  ]);
}

const add = new Kernel(
  function add(this: KernelThread, total: number[], part: number[]): number {
    return total[this.thread.x] + part[this.thread.x];
  },
  ['Array', 'Array'],
  { inPlace: 0 },
);

/** Adds an array to another in place. */
export function accumulate(total: DeviceValue, part: DeviceValue, scratch: ScratchSpace): KernelDispatch[] {
  return inPlace(scratch, total, [part], (own, [added]) =>
    add.step([own.length], [{ value: own }, added], own),
  );
}
