import { type InferenceSession, Tensor as OnnxTensor } from 'onnxruntime-node';
import type { Graph, Tensor, TypedArray } from '../../graph/tensor.ts';
import { bindOutputs, bindParameters, checkInput, refuseUnknownInputs } from '../binding.ts';
import type { CompileOptions, Executable, Tensors } from '../runtime.ts';
import { messageOf, RuntimeError } from '../runtime-error.ts';
import { inputName, outputName } from './model-builder.ts';
import { type SessionBudget, type SessionHolder, sessionBytes } from './session-budget.ts';

/** State that an executable takes from its runtime. */
export interface ExecutableOwner {
  readonly sessions: SessionBudget;
  createSession(): Promise<InferenceSession>;
  onDispose(): void;
}

/** A graph as a session of ONNX Runtime, created again after it had to be given up. */
export class OnnxExecutable implements Executable, SessionHolder {
  readonly graph: Graph;
  readonly #owner: ExecutableOwner;
  readonly #bytes: number;
  readonly #feeds: Record<string, OnnxTensor>;
  readonly #fetches: Record<string, OnnxTensor> = {};
  readonly #outputs: Tensors;
  #session: InferenceSession | null = null;
  #running = 0;
  #disposed = false;

  constructor(graph: Graph, options: CompileOptions, owner: ExecutableOwner) {
    this.graph = graph;
    this.#owner = owner;
    this.#bytes = sessionBytes(graph);
    this.#feeds = Object.fromEntries(
      [...bindParameters(graph, options)].map(([name, array]) => [
        inputName(name),
        wrap(graph.parameters.get(name)!, array),
      ]),
    );
    this.#outputs = bindOutputs(graph, options);
    for (const [name, tensor] of graph.outputs) {
      this.#fetches[outputName(name)] = wrap(tensor, this.#outputs[name]);
    }
  }

  get busy(): boolean {
    return this.#running > 0;
  }

  /** Makes sure of a session. */
  async prepare(): Promise<InferenceSession> {
    if (this.#disposed) throw new RuntimeError('the executable was disposed and cannot run');
    const session = this.#session ?? (await this.#owner.createSession());
    this.#session = session;
    await this.#owner.sessions.use(this, this.#bytes);
    return session;
  }

  async run(inputs: Tensors): Promise<Tensors> {
    this.#feed(inputs);
    this.#running++;
    try {
      const session = await this.prepare();
      await session.run(this.#feeds, this.#fetches).catch(cause => {
        throw new RuntimeError(`the run failed in ONNX Runtime: ${messageOf(cause)}`, { cause });
      });
    } finally {
      this.#running--;
    }
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

  #feed(inputs: Tensors): void {
    refuseUnknownInputs(this.graph, inputs);
    for (const [name, tensor] of this.graph.inputs) {
      const array = inputs[name];
      const key = inputName(name);
      if (array !== undefined && this.#feeds[key]?.data === array) continue;
      checkInput(name, tensor, array);
      this.#feeds[key] = wrap(tensor, array);
    }
  }
}

function wrap(tensor: Tensor, array: TypedArray): OnnxTensor {
  if (array instanceof Float32Array) return new OnnxTensor('float32', array, tensor.shape);
  if (array instanceof Int32Array) return new OnnxTensor('int32', array, tensor.shape);
  if (array instanceof Int8Array) return new OnnxTensor('int8', array, tensor.shape);
  return new OnnxTensor(tensor.dtype === 'uint8' ? 'uint8' : 'bool', array, tensor.shape);
}
