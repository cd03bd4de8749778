import { type DeviceValue, type KernelDispatch, ROW_THREADS, workgroupGrid } from '../lowering/step.ts';

const code = `
struct Uniforms {
  count : u32,
  // threads of a row of workgroups
  threads : u32,
  // elements of a row
  width : u32,
}
@group(0) @binding(0) var<uniform> u : Uniforms;
@group(0) @binding(1) var<storage, read> rows : array<f32>;
@group(0) @binding(2) var<storage, read> places : array<f32>;
@group(0) @binding(3) var<storage, read_write> table : array<f32>;

@compute @workgroup_size(${ROW_THREADS})
fn main(@builtin(global_invocation_id) id : vec3<u32>) {
  let index = id.x + id.y * u.threads;
  if (index >= u.count) { return; }
  let row = index / u.width;
  table[u32(places[row]) * u.width + index % u.width] = rows[index];
}
`;

/** Overwrites rows of a table in place. */
export function replaceRows(table: DeviceValue, rows: DeviceValue, places: DeviceValue): KernelDispatch {
  const width = rows.length / places.length;
  const { groups, width: threads } = workgroupGrid(rows.length);
  return {
    name: 'put rows',
    code,
    uniforms: Uint32Array.of(rows.length, threads, width).buffer,
    reads: [rows, places],
    writes: [table],
    groups,
    runOnCpu([from, at], [to]) {
      at.forEach((place, row) => {
        to.set(from.subarray(row * width, (row + 1) * width), place * width);
      });
    },
  };
}
