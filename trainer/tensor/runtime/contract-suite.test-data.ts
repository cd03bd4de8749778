import type { Test } from 'tap';
import { caseGraph, largeCases, type OperationCase, operationCases } from '../graph/cases.test-data.ts';
import { GraphBuilder } from '../graph/graph.ts';
import { interpret } from '../graph/interpreter.test-data.ts';
import { deviceCases, quantizedCases } from '../graph/optional-cases.test-data.ts';
import type { TypedArray } from '../graph/tensor.ts';
import { ParameterStore } from './parameter-store.ts';
import type { Runtime } from './runtime.ts';
import { RuntimeError } from './runtime-error.ts';

/** An entry may be off by `absolute` × the tensor's largest entry (at least 1) + `relative` × itself. */
export interface ContractTolerance {
  readonly absolute: number;
  readonly relative: number;
}

export interface ContractOptions {
  readonly tolerance?: ContractTolerance;
  /** Number of times that the large cases run, to give the same bits each time. */
  readonly repeats?: number;
  /** True if the large cases run, too; the default. */
  readonly large?: boolean;
}

const REPEATS = 30;
const FLOAT32_TOLERANCE: ContractTolerance = { absolute: 2e-6, relative: 1e-5 };

/**
 * What every runtime must do, as subtests: each operation and its gradient like the float64 interpreter,
 * parameters read at each run, bound outputs, errors that name the fault.
 */
export async function runContractSuite(
  t: Test,
  create: () => Runtime,
  { tolerance = FLOAT32_TOLERANCE, repeats = REPEATS, large = true }: ContractOptions = {},
): Promise<void> {
  const runtime = create();
  t.teardown(() => runtime.close());
  for (const operationCase of [
    ...operationCases,
    ...(large ? largeCases : []),
    ...(runtime.memory === undefined ? [] : deviceCases),
    ...(runtime.name === 'onnx' ? quantizedCases : []),
  ]) {
    await t.test(`${operationCase.operation} ${operationCase.title}`, async t => {
      await compareCase(t, runtime, operationCase, tolerance);
    });
  }
  await t.test('parameters are read again at every run and outputs land in bound arrays', t =>
    checkBinding(t, runtime),
  );
  if (large) await t.test('the same run gives the same bits', t => checkRepeatability(t, runtime, repeats));
  await t.test('faults are named', t => checkFaults(t, runtime));
}

async function compareCase(
  t: Test,
  runtime: Runtime,
  operationCase: OperationCase,
  { absolute, relative }: ContractTolerance,
): Promise<void> {
  const graph = caseGraph(operationCase);
  const inputs = caseInputs(operationCase);
  const expected = interpret(graph, inputs);
  const executable = await runtime.compile(graph);
  const actual = await executable.run(inputs);
  for (const [name, values] of Object.entries(expected)) {
    const given = actual[name];
    const largest = values.reduce((a, b) => Math.max(a, Math.abs(b)), 1);
    const wrong = [...values].flatMap((value, i) =>
      Math.abs(given[i] - value) <= absolute * largest + relative * Math.abs(value)
        ? []
        : [`[${i}] is ${given[i]}, should be ${value}`],
    );
    t.strictSame(wrong, [], name);
  }
  await executable.dispose();
}

async function checkBinding(t: Test, runtime: Runtime): Promise<void> {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [2]);
  g.output('y', g.add(x, g.parameter('w', [2])));
  g.output('same', x);
  const parameters = new ParameterStore([{ name: 'w', shape: [2] }]);
  const y = new Float32Array(2);
  const executable = await runtime.compile(g.build(), { parameters, outputs: { y } });
  const inputs = { x: Float32Array.of(1, 2) };
  const outputs = await executable.run(inputs);
  t.equal(outputs.y, y);
  t.strictSame([...y], [1, 2]);
  t.strictSame([...outputs.same], [1, 2]);
  parameters.array('w').set([10, 20]);
  parameters.touch();
  inputs.x[0] = 5;
  await executable.run(inputs);
  t.strictSame([...y], [15, 22]);
  await executable.run({ x: Float32Array.of(-1, -2) });
  t.strictSame([...y], [9, 18]);
}

async function checkRepeatability(t: Test, runtime: Runtime, repeats: number): Promise<void> {
  for (const operationCase of largeCases) {
    const executable = await runtime.compile(caseGraph(operationCase));
    const inputs = caseInputs(operationCase);
    const first = structuredClone(await executable.run(inputs));
    const differing = new Set<string>();
    for (let repeat = 0; repeat < repeats; repeat++) {
      for (const [name, values] of Object.entries(await executable.run(inputs))) {
        if (Buffer.compare(bytesOf(values), bytesOf(first[name])) !== 0) differing.add(name);
      }
    }
    t.strictSame([...differing], [], `${operationCase.operation} ${operationCase.title}`);
    await executable.dispose();
  }
}

async function checkFaults(t: Test, runtime: Runtime): Promise<void> {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [2]);
  g.output('y', g.mul(x, g.parameter('w', [2])));
  const graph = g.build();
  const parameters = new ParameterStore([{ name: 'w', shape: [2] }]);
  const misshapen = new ParameterStore([{ name: 'w', shape: [1, 2] }]);
  await t.rejects(runtime.compile(graph), /'w'.*ParameterStore/);
  await t.rejects(
    runtime.compile(graph, { parameters: misshapen }),
    /'w' has shape \[1,2\], the graph wants \[2\]/,
  );
  await t.rejects(
    runtime.compile(graph, { parameters, outputs: { z: new Float32Array(2) } }),
    /no output 'z'; it has y/,
  );
  await t.rejects(
    runtime.compile(graph, { parameters, outputs: { y: new Float32Array(3) } }),
    /Float32Array of 2 elements/,
  );
  const executable = await runtime.compile(graph, { parameters });
  await t.rejects(executable.run({}), RuntimeError);
  await t.rejects(executable.run({ x: new Float32Array(3) }), /'x' is float32\[2\].*got Float32Array of 3/);
  await t.rejects(executable.run({ x: new Int32Array(2) }), /got Int32Array of 2/);
  await t.rejects(
    executable.run({ x: new Float32Array(2), q: new Float32Array(2) }),
    /no input 'q'; it has x/,
  );
  await executable.dispose();
  await t.rejects(executable.run({ x: new Float32Array(2) }), /was disposed/);
}

function bytesOf({ buffer, byteOffset, byteLength }: TypedArray): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

function caseInputs(operationCase: OperationCase): Record<string, TypedArray> {
  return Object.fromEntries(
    Object.entries(operationCase.inputs).map(([name, { dtype, values }]) => [name, toTyped(dtype, values)]),
  );
}

function toTyped(dtype: string, values: readonly number[]): TypedArray {
  if (dtype === 'float32') return Float32Array.from(values);
  if (dtype === 'int8') return Int8Array.from(values);
  return dtype === 'int32' ? Int32Array.from(values) : Uint8Array.from(values);
}
