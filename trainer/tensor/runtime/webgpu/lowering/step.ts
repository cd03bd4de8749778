/** An array of float32 on the device: a tensor's elements, integers and flags as numbers. */
export interface DeviceValue {
  readonly id: number;
  readonly length: number;
  /** Set for a part of another array: that array, and the element where the part begins. */
  readonly part?: { readonly of: DeviceValue; readonly start: number };
}

/** Workgroups of a dispatch. */
export type Workgroups = readonly [x: number, y: number, z: number];

/** One dispatch of a compute shader over whole arrays. */
export interface KernelDispatch {
  /** Name for errors and traces. */
  readonly name: string;
  /** WGSL with the entry `main`: binding 0 holds {@link uniforms}, then come what it reads and what it writes. */
  readonly code: string;
  readonly uniforms: ArrayBuffer;
  readonly reads: readonly DeviceValue[];
  /** Written whole, or read and written in place. */
  readonly writes: readonly DeviceValue[];
  readonly groups: Workgroups;
}

/** Threads of a dimension in one workgroup of our kernels: 64 in a row, or 8 × 8. */
export const ROW_THREADS = 64;
export const TILE_THREADS = 8;
/** Workgroups that every device takes in one dimension. */
export const MAX_GROUPS = 65_535;

/**
 * Workgroups for a row of threads, folded over two dimensions where one does not reach.
 * @returns groups, and the threads of one row of groups
 */
export function workgroupGrid(threads: number): { readonly groups: Workgroups; readonly width: number } {
  const count = Math.ceil(threads / ROW_THREADS);
  const rows = Math.ceil(count / MAX_GROUPS);
  const columns = Math.ceil(count / rows);
  return { groups: [columns, rows, 1], width: columns * ROW_THREADS };
}
