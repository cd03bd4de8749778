import { type ChildProcess, spawn } from 'node:child_process';
import type { Json } from '../../../../shared/json.ts';

/** The only environment variables that programs see. */
const ENVIRONMENT = { PATH: '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C.UTF-8' };
const START_MS = 30_000;
/** Milliseconds that a test may take beyond its time limit. */
const GRACE_MS = 15_000;
const MS_PER_S = 1000;
/** Size of the limits in front of a test; see harness.py. */
const HEADER_BYTES = 256;
const NO_TIME_LEFT = {
  status: 'timeout',
  error: 'no time left for this test',
  output: Buffer.alloc(0),
} as const;

export interface JobLimits {
  /** Processor seconds of one test. */
  readonly cpu_s: number;
  readonly wall_s: number;
  /** For all tests of a program together. */
  readonly total_s: number;
  readonly memory_mb: number;
  readonly output_bytes: number;
}

export interface Job extends JobLimits {
  readonly program: string;
  readonly function: string | null;
  /** Text for programs that read input, a list of arguments for functions. */
  readonly inputs: readonly Json[];
}

export interface RunResult {
  /** `invalid`: the text is not a program, and its other tests are skipped. */
  readonly status: 'ok' | 'error' | 'invalid' | 'timeout' | 'output';
  /** UTF-8 or arbitrary bytes; overwritten when the judge has returned. */
  readonly output: Buffer;
  /** The program's own text, which may quote the input; with `invalid`, the Python compiler's. */
  readonly error: string;
}

/** Judges each result as it arrives, so that at most one output is in memory. */
export type Judge<T> = (result: RunResult, index: number) => T;

/** A judge that keeps the output, as text. */
export const asText = ({ status, error, output }: RunResult) => ({
  status,
  error,
  output: output.toString(),
});

/** There is no sandbox on this machine, or it broke; not caused by a program. */
export class SandboxFailed extends Error {
  override readonly name = 'SandboxFailed';
}

/** Kills a detached process that runs, with everything it started. */
export function killGroup(child: ChildProcess | undefined): void {
  if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    child.kill('SIGKILL');
  }
}

/** One process of `harness.py`, which runs one test after the other. */
export class Sandbox {
  readonly #child: ChildProcess;
  readonly #reader: AnswerReader;
  #walls: readonly string[] = [];
  #errors = '';
  #waiting: ((answer: Answer | SandboxFailed) => void) | undefined;
  #broken: SandboxFailed | undefined;

  private constructor(command: readonly string[]) {
    const [program, ...args] = command;
    const child = spawn(program, args, {
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: true,
      env: ENVIRONMENT,
      cwd: '/',
    });
    this.#child = child;
    this.#reader = new AnswerReader(answer => this.#take(answer));
    child.stdin?.on('error', () => this.#fail('does not read'));
    child.stdout?.on('data', (chunk: Buffer) => this.#read(chunk));
    child.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
      this.#errors = (this.#errors + chunk).slice(-2000);
    });
    child.on('error', error => this.#fail(`does not start: ${error.message}`));
    child.on('close', code =>
      this.#fail(`ended with code ${code}: ${this.#errors.trim().split('\n').at(-1) ?? ''}`),
    );
    this.#unref();
  }

  /** @throws SandboxFailed */
  static async start(command: readonly string[]): Promise<Sandbox> {
    const sandbox = new Sandbox(command);
    await sandbox.#during(START_MS, ({ walls }) => {
      if (!Array.isArray(walls)) throw new SandboxFailed('the sandbox says nothing of its walls');
      sandbox.#walls = walls as string[];
    });
    return sandbox;
  }

  /** The walls around every program, e.g. rlimits, seccomp, mount; see README.md. */
  get walls(): readonly string[] {
    return this.#walls;
  }

  get isBroken(): boolean {
    return this.#broken !== undefined;
  }

  /**
   * Runs a program on its inputs and returns the judge's result for each.
   * @throws SandboxFailed when the sandbox itself breaks, never for the program's own actions; anything the judge
   * throws
   */
  async run<T>(job: Job, judge: Judge<T>): Promise<T[]> {
    const { inputs, program, function: called, ...limits } = job;
    const deadline = performance.now() + job.total_s * MS_PER_S;
    let failed: RunResult | undefined;
    this.#reader.allow(job.output_bytes);
    try {
      const judged: T[] = [];
      for (const [index, input] of inputs.entries()) {
        const leftMs = deadline - performance.now();
        if (leftMs <= 0) failed = NO_TIME_LEFT;
        if (failed) judged.push(judge(failed, index));
        else {
          const test = Buffer.from(JSON.stringify({ program, function: called, input }));
          // A test leaves this process only when its turn has come: no program finds those after its own.
          this.#write({ ...limits, total_s: leftMs / MS_PER_S, bytes: test.length }, test);
          await this.#during(leftMs + GRACE_MS, ({ status, error, data }) => {
            const result = { status, error, output: data } as RunResult;
            if (result.status === 'invalid') failed = { ...result, output: NO_TIME_LEFT.output };
            judged.push(judge(result, index));
          });
        }
      }
      return judged;
    } finally {
      this.#reader.allow(0);
    }
  }

  /** Kills the process with everything it started. */
  stop(): void {
    this.#fail('was stopped');
    killGroup(this.#child);
  }

  #write(header: object, test: Buffer): void {
    const head = Buffer.from(JSON.stringify(header).padEnd(HEADER_BYTES));
    this.#child.stdin?.write(Buffer.concat([head, test]));
  }

  /** Takes the next answer; any fault ends the sandbox. */
  async #during(timeoutMs: number, take: (answer: Answer) => void): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    this.#ref();
    try {
      await new Promise<void>((resolve, reject) => {
        if (this.#broken) throw this.#broken;
        timer = setTimeout(() => this.#fail(`did not answer within ${timeoutMs} ms`), timeoutMs);
        this.#waiting = answer => {
          try {
            if (answer instanceof SandboxFailed) throw answer;
            take(answer);
            resolve();
          } catch (error) {
            reject(error);
          }
        };
      });
    } catch (error) {
      this.stop();
      throw error;
    } finally {
      clearTimeout(timer);
      this.#waiting = undefined;
      this.#unref();
    }
  }

  #read(chunk: Buffer): void {
    try {
      this.#reader.push(chunk);
    } catch (error) {
      this.#fail((error as Error).message);
    }
  }

  #take(answer: Answer): void {
    if (answer.fault !== undefined) this.#fail(`failed: ${answer.fault}`);
    else if (this.#waiting) this.#waiting(answer);
    else this.#fail('spoke unasked');
  }

  #fail(why: string): void {
    this.#broken ??= new SandboxFailed(`the sandbox ${why}`);
    this.#waiting?.(this.#broken);
  }

  /** An idle sandbox does not keep the process alive, a busy one does. */
  #ref(): void {
    this.#child.ref();
    for (const pipe of this.#pipes()) pipe.ref();
  }

  #unref(): void {
    this.#child.unref();
    for (const pipe of this.#pipes()) pipe.unref();
  }

  #pipes(): { ref(): void; unref(): void }[] {
    const { stdin, stdout, stderr } = this.#child;
    return [stdin, stdout, stderr] as unknown as { ref(): void; unref(): void }[];
  }
}

/** Longest line that the harness may write. */
const MAX_LINE_LENGTH = 65_536;
const NEWLINE = 0x0a;
const NOTHING = Buffer.alloc(0);

/** One line of JSON from the harness, and the bytes that the line announces. */
interface Answer {
  readonly [key: string]: unknown;
  /** Overwritten by the next answer. */
  readonly data: Buffer;
}

/** Parses the harness's output: lines of JSON, each followed by as many bytes as its `bytes` says. */
class AnswerReader {
  readonly #take: (answer: Answer) => void;
  #line: Buffer = NOTHING;
  #header: object | undefined;
  /** Holds the bytes of one answer at a time. */
  #room: Buffer = NOTHING;
  #data: Buffer = NOTHING;
  #filled = 0;
  #mostBytes = 0;

  constructor(take: (answer: Answer) => void) {
    this.#take = take;
  }

  /** Most bytes that a line may announce; earlier bytes are released. */
  allow(bytes: number): void {
    this.#mostBytes = bytes;
    this.#room = NOTHING;
    this.#data = NOTHING;
  }

  /** @throws Error when a line is not JSON, is too long or announces too much */
  push(chunk: Buffer): void {
    for (let rest = chunk; rest.length > 0; ) {
      rest = this.#header ? this.#readData(rest) : this.#readLine(rest);
    }
  }

  #readLine(chunk: Buffer): Buffer {
    const end = chunk.indexOf(NEWLINE);
    const part = end < 0 ? chunk : chunk.subarray(0, end);
    if (this.#line.length + part.length > MAX_LINE_LENGTH)
      throw new Error(`wrote a line of more than ${MAX_LINE_LENGTH} bytes`);
    this.#line = Buffer.concat([this.#line, part]);
    if (end < 0) return NOTHING;
    const header = JSON.parse(this.#line.toString()) as { bytes?: number };
    this.#line = NOTHING;
    const { bytes = 0 } = header;
    if (!(bytes <= this.#mostBytes))
      throw new Error(`announced ${bytes} bytes, more than ${this.#mostBytes}`);
    this.#header = header;
    if (bytes > this.#room.length)
      this.#room = Buffer.allocUnsafeSlow(Math.min(this.#mostBytes, 2 ** Math.ceil(Math.log2(bytes))));
    this.#data = this.#room.subarray(0, bytes);
    this.#filled = 0;
    if (bytes === 0) this.#finish();
    return chunk.subarray(end + 1);
  }

  #readData(chunk: Buffer): Buffer {
    const taken = chunk.copy(this.#data, this.#filled);
    this.#filled += taken;
    if (this.#filled === this.#data.length) this.#finish();
    return chunk.subarray(taken);
  }

  #finish(): void {
    const answer = { ...this.#header, data: this.#data };
    this.#header = undefined;
    this.#take(answer);
  }
}
