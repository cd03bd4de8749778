import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import type { Shape } from './shapes.ts';

const SCRIPT = fileURLToPath(new URL('./reference.py', import.meta.url));

type PythonProcess = ChildProcessByStdio<Writable, Readable, null>;

/** PyTorch and transformers in a Python process that waits for measurements to take. */
export class Reference {
  readonly versions: string;
  /** Devices: `cpu`, and `cuda` where PyTorch sees a GPU. */
  readonly devices: readonly string[];
  readonly #process: PythonProcess;
  readonly #lines: AsyncIterator<string>;

  private constructor(
    process: PythonProcess,
    lines: AsyncIterator<string>,
    versions: string,
    devices: readonly string[],
  ) {
    this.#process = process;
    this.#lines = lines;
    this.versions = versions;
    this.devices = devices;
  }

  /** @returns null where this Python cannot be started or lacks torch or transformers */
  static async start(python: string): Promise<Reference | null> {
    const child = spawn(python, [SCRIPT], { stdio: ['pipe', 'pipe', 'ignore'] });
    child.on('error', () => undefined);
    child.stdin.on('error', () => undefined);
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const first = await lines.next();
    if (first.done) return null;
    const { torch, transformers, devices } = JSON.parse(first.value) as {
      torch: string;
      transformers: string;
      devices: string[];
    };
    return new Reference(child, lines, `PyTorch ${torch}, transformers ${transformers}`, devices);
  }

  /** @returns milliseconds of each of the steps, after one to warm up */
  async measure(
    task: 'train' | 'decode',
    shape: Shape,
    threads: number,
    steps: number,
    device: 'cpu' | 'cuda',
  ): Promise<number[]> {
    this.#process.stdin.write(`${JSON.stringify({ task, shape, threads, steps, device })}\n`);
    const line = await this.#lines.next();
    if (line.done) throw new Error(`the reference stopped while measuring ${task} of ${shape.name}`);
    return JSON.parse(line.value) as number[];
  }

  stop(): void {
    this.#process.stdin.end();
  }
}
