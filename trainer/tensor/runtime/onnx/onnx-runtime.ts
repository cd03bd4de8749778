import { InferenceSession } from 'onnxruntime-node';
import type { Graph } from '../../graph/tensor.ts';
import { SESSIONS_BYTES } from '../choice.ts';
import { dump } from '../dump.ts';
import type { CompileOptions, Executable, Runtime } from '../runtime.ts';
import { messageOf, RuntimeError } from '../runtime-error.ts';
import { lower } from './lowering.ts';
import { encodeModel } from './model-proto.ts';
import { OnnxExecutable } from './onnx-executable.ts';
import { SessionBudget } from './session-budget.ts';

export interface OnnxRuntimeOptions {
  /** Threads a run may use, the calling one included; 1 when absent. */
  readonly threads?: number;
  /**
   * Memory that sessions may take, about, values of a run aside; SESSIONS_BYTES when absent. Beyond it the executables
   * that were used longest ago give their sessions up, and create them again at their next run.
   */
  readonly sessionsBytes?: number;
}

/**
 * The CPU runtime: graphs as ONNX models in ONNX Runtime. Denormals are flushed to zero, in the thread that compiles
 * also those of JavaScript.
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
      createSession: () => this.#createSession(graph),
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

  async #createSession(graph: Graph): Promise<InferenceSession> {
    const { threads = 1 } = this.#options;
    const model = encodeModel(lower(graph, threads));
    dump('onnx', [...graph.outputs.keys()].join('-'), () => model);
    const session = InferenceSession.create(model, {
      intraOpNumThreads: threads,
      executionMode: 'sequential',
      // A planned pattern would keep a second copy of all intermediate values and is no faster.
      enableMemPattern: false,
      // An arena belongs to one session and keeps what it took; the heap serves all of them in turn, as fast.
      enableCpuMemArena: false,
      // What would be fused is fused in lowering; ONNX Runtime's search for it takes twice as long as all else here.
      graphOptimizationLevel: 'disabled',
      extra: { session: { set_denormal_as_zero: '1' } },
      logSeverityLevel: 3,
    });
    return session.catch(cause => {
      throw new RuntimeError(`ONNX Runtime refuses the graph: ${messageOf(cause)}`, { cause });
    });
  }
}
