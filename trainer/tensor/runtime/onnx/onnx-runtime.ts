import { InferenceSession, Tensor as OnnxTensor } from 'onnxruntime-node';
import { atEnd } from '../../../../shared/closing.ts';
import { GraphBuilder } from '../../graph/graph.ts';
import { blockLayout } from '../../graph/operations/blocks.ts';
import { type Graph, sizeOf, type Tensor, type TypedArray } from '../../graph/tensor.ts';
import { bindOutputs, bindParameters, checkInput, refuseUnknownInputs } from '../binding.ts';
import { dump } from '../dump.ts';
import { ParameterStore } from '../parameter-store.ts';
import {
  type CompileOptions,
  type Executable,
  type Runtime,
  SESSIONS_BYTES,
  type Tensors,
} from '../runtime.ts';
import { messageOf, RuntimeError } from '../runtime-error.ts';
import { lower } from './lowering.ts';
import { encodeModel, inputName, type ModelOptions, outputName } from './model-builder.ts';

/** State that an executable takes from its runtime. */
interface ExecutableOwner {
  readonly sessions: SessionBudget;
  createSession(constants: Constants): Promise<InferenceSession>;
  onDispose(): void;
}

/** Parameters that a session holds itself, by name. */
type Constants = ReadonlyMap<string, TypedArray>;

/** A graph as a session of ONNX Runtime. A session given up for memory is created again. */
class OnnxExecutable implements Executable, SessionHolder {
  readonly graph: Graph;
  readonly #owner: ExecutableOwner;
  readonly #bytes: number;
  readonly #feeds: Record<string, OnnxTensor>;
  readonly #fetches: Record<string, OnnxTensor> = {};
  readonly #anyRows: boolean;
  /** True if there are two rows or more, and products with packed weights of 4 bits. */
  readonly #hasHalfBytes: boolean;
  /** Rows that inputs and outputs are bound for; null for all those of the graph. */
  #rows: number | null = null;
  readonly #outputs: Tensors;
  readonly #constants: Constants;
  /** Arrays of inputs, as the last run got them. */
  readonly #fed = new Map<string, TypedArray>();
  #session: InferenceSession | null = null;
  #running = 0;
  #disposed = false;

  constructor(graph: Graph, options: CompileOptions, owner: ExecutableOwner) {
    this.graph = graph;
    this.#owner = owner;
    // Of a session between runs, about.
    this.#bytes = NODE_BYTES * graph.nodes.length;
    this.#anyRows = options.anyRows ?? false;
    const parameters = bindParameters(graph, options);
    this.#constants = this.#anyRows ? packedParameters(graph, parameters) : new Map();
    this.#hasHalfBytes =
      graph.nodes.some(({ operation, attributes }) => operation === 'blockMatmul' && attributes.bits === 4) &&
      [...graph.inputs.values()].every(({ shape }) => shape[0] > 1);
    this.#feeds = Object.fromEntries(
      [...parameters].flatMap(([name, array]) =>
        this.#constants.has(name) ? [] : [[inputName(name), wrap(graph.parameters.get(name)!, array)]],
      ),
    );
    this.#outputs = bindOutputs(graph, options);
    this.#bindOutputs();
  }

  #bindOutputs(): void {
    for (const [name, tensor] of this.graph.outputs) {
      this.#fetches[outputName(name)] = wrap(tensor, this.#outputs[name], this.#rows);
    }
  }

  get busy(): boolean {
    return this.#running > 0;
  }

  /** Returns the session; creates it if there is none. */
  async prepare(): Promise<InferenceSession> {
    if (this.#disposed) throw new RuntimeError('the executable was disposed and cannot run');
    const session = this.#session ?? (await this.#owner.createSession(this.#constants));
    this.#session = session;
    await this.#owner.sessions.use(this, this.#bytes);
    return session;
  }

  async run(inputs: Tensors, rows?: number): Promise<Tensors> {
    if (rows !== undefined && !this.#anyRows)
      throw new RuntimeError('the program has a fixed number of rows');
    const apart = rows === 1 && this.#hasHalfBytes && !(await oneRowIsAlike());
    this.#feed(inputs, apart ? 2 : (rows ?? null));
    this.#running++;
    using _run = atEnd(() => this.#running--);
    const session = await this.prepare();
    await session.run(this.#feeds, this.#fetches).catch(cause => {
      throw new RuntimeError(`the run failed in ONNX Runtime: ${messageOf(cause)}`, { cause });
    });
    return this.#outputs;
  }

  async suspend(): Promise<void> {
    const session = this.#session;
    this.#session = null;
    await session?.release();
  }

  async dispose(): Promise<void> {
    this.#disposed = true;
    this.#owner.sessions.leave(this);
    this.#owner.onDispose();
    await this.suspend();
  }

  #feed(inputs: Tensors, rows: number | null): void {
    refuseUnknownInputs(this.graph, inputs);
    const sameRows = rows === this.#rows;
    this.#rows = rows;
    if (!sameRows) this.#bindOutputs();
    for (const [name, tensor] of this.graph.inputs) {
      const array = inputs[name];
      if (sameRows && array !== undefined && this.#fed.get(name) === array) continue;
      checkInput(name, tensor, array);
      this.#feeds[inputName(name)] = wrap(tensor, array, rows);
      this.#fed.set(name, array);
    }
  }
}

/** @param rows number of the array's rows to use; all when null */
function wrap(tensor: Tensor, array: TypedArray, rows: number | null = null): OnnxTensor {
  const { shape } = tensor;
  if (rows !== null) {
    const width = sizeOf(shape.slice(1));
    return wrap({ ...tensor, shape: shape.with(0, rows) }, array.subarray(0, rows * width));
  }
  if (array instanceof Float32Array) return new OnnxTensor('float32', array, shape);
  if (array instanceof Int32Array) return new OnnxTensor('int32', array, shape);
  if (array instanceof Int8Array) return new OnnxTensor('int8', array, shape);
  return new OnnxTensor(tensor.dtype === 'uint8' ? 'uint8' : 'bool', array, shape);
}

/** Codes and scales of products with weights in blocks, by name; they never change. */
function packedParameters(graph: Graph, parameters: ReadonlyMap<string, TypedArray>): Constants {
  const packed = new Map<string, TypedArray>();
  for (const { operation, inputs, attributes } of graph.nodes) {
    if (operation !== 'blockMatmul' || attributes.transposed) continue;
    for (const { attributes: parameter } of inputs.slice(1)) {
      const name = parameter.name as string;
      packed.set(name, parameters.get(name)!);
    }
  }
  return packed;
}

export interface OnnxRuntimeOptions {
  /** Threads a run may use, the calling one included; 1 when absent. */
  readonly threads?: number;
  /**
   * Approximate memory for all sessions, without values of a run; SESSIONS_BYTES when absent. Beyond it the least
   * recently used executables give their sessions up, and create them again at their next run.
   */
  readonly sessionsBytes?: number;
}

/**
 * The CPU runtime: graphs as ONNX models in ONNX Runtime. Denormals are flushed to zero; in the thread that compiles,
 * JavaScript's too.
 */
export class OnnxRuntime implements Runtime {
  readonly name = 'onnx';
  readonly description: string;
  readonly #options: OnnxRuntimeOptions;
  readonly #sessions: SessionBudget;
  readonly #open = new Set<OnnxExecutable>();

  constructor(options: OnnxRuntimeOptions = {}) {
    this.#options = options;
    const { threads = 1 } = options;
    this.description = `ONNX Runtime on the processor, ${threads} thread${threads === 1 ? '' : 's'} a worker`;
    this.#sessions = new SessionBudget(options.sessionsBytes ?? SESSIONS_BYTES);
  }

  async compile(graph: Graph, options: CompileOptions = {}): Promise<Executable> {
    const executable = new OnnxExecutable(graph, options, {
      createSession: constants => this.#createSession(graph, { constants, anyRows: options.anyRows }),
      sessions: this.#sessions,
      onDispose: () => this.#open.delete(executable),
    });
    this.#open.add(executable);
    await executable.prepare();
    return executable;
  }

  async close(): Promise<void> {
    for (const executable of [...this.#open]) await executable.dispose();
  }

  async #createSession(graph: Graph, options: Omit<ModelOptions, 'threads'>): Promise<InferenceSession> {
    const { threads = 1 } = this.#options;
    const model = encodeModel(lower(graph, { ...options, threads }));
    dump('onnx', [...graph.outputs.keys()].join('-'), () => model);
    const session = InferenceSession.create(model, {
      intraOpNumThreads: threads,
      executionMode: 'sequential',
      // A planned memory pattern would keep a second copy of all intermediate values and is no faster.
      enableMemPattern: false,
      // An arena belongs to one session and keeps its memory; the heap serves all sessions in turn and is as fast.
      enableCpuMemArena: false,
      // Lowering already fuses what can be fused; ONNX Runtime's search for fusions takes twice as long as everything
      // else here.
      graphOptimizationLevel: 'disabled',
      extra: { session: { set_denormal_as_zero: '1' } },
      logSeverityLevel: 3,
    });
    return session.catch(cause => {
      throw new RuntimeError(`ONNX Runtime refuses the graph: ${messageOf(cause)}`, { cause });
    });
  }
}

/**
 * Memory of a session for each node of its graph (kernels, names, types), without values of a run. Measured on training
 * graphs.
 */
const NODE_BYTES = 10_240;

/** Owner of a session that it can give up for a while. */
interface SessionHolder {
  readonly busy: boolean;
  suspend(): Promise<void>;
}

/** Shares a memory budget among sessions: the least recently used is given up first. */
export class SessionBudget {
  readonly #budget: number;
  /** Bytes by holder, in the order of their last use. */
  readonly #holders = new Map<SessionHolder, number>();
  #total = 0;

  constructor(budgetBytes: number) {
    this.#budget = budgetBytes;
  }

  /** Notes a use. A session that exceeds the budget alone is kept. */
  async use(holder: SessionHolder, bytes: number): Promise<void> {
    this.leave(holder);
    this.#holders.set(holder, bytes);
    this.#total += bytes;
    if (this.#total <= this.#budget) return;
    for (const other of [...this.#holders.keys()]) {
      if (this.#total <= this.#budget) break;
      if (other === holder || other.busy) continue;
      this.leave(other);
      await other.suspend();
    }
  }

  leave(holder: SessionHolder): void {
    this.#total -= this.#holders.get(holder) ?? 0;
    this.#holders.delete(holder);
  }
}

let oneRow: Promise<boolean> | undefined;

/**
 * True if ONNX Runtime gives a single row of a product with packed weights of 4 bits the bits that it has among others. Its
 * kernel for one row adds in another order on some processors, such as those with AVX2 and without AVX-512; there, two rows run
 * in its place. Tried once in a process.
 */
function oneRowIsAlike(): Promise<boolean> {
  oneRow ??= tryOneRow();
  return oneRow;
}

async function tryOneRow(): Promise<boolean> {
  const [inputs, outputs] = [192, 72];
  const storage = { bits: 4, block: 32, minimums: false } as const;
  const layout = blockLayout(storage, [outputs, inputs]);
  const parameters = new ParameterStore([
    { name: 'codes', shape: layout.codes, dtype: 'uint8' },
    { name: 'scales', shape: layout.scales },
  ]);
  const wave = (_: number, i: number) => Math.sin(i * i);
  parameters.data('codes').forEach((_, i, codes) => {
    codes[i] = i * i + 97 * i;
  });
  const scales = parameters.data('scales');
  scales.set(scales.map(wave));
  const x = new Float32Array(2 * inputs).map(wave);
  const runtime = new OnnxRuntime();
  const multiply = async (rows: number) => {
    const g = new GraphBuilder();
    const weight = [g.parameter('codes', layout.codes, 'uint8'), g.parameter('scales', layout.scales)];
    const attributes = { ...storage, outputs, inputs, transposed: false };
    g.output('y', g.apply('blockMatmul', [g.input('x', 'float32', [rows, inputs]), ...weight], attributes));
    const program = await runtime.compile(g.build(), { parameters, anyRows: true });
    return (await program.run({ x: x.subarray(0, rows * inputs) })).y.subarray(0, outputs);
  };
  const [alone, among] = [await multiply(1), await multiply(2)];
  await runtime.close();
  return alone.every((value, i) => value === among[i]);
}
