import { spawn } from 'node:child_process';
import { accessSync, constants, existsSync, realpathSync } from 'node:fs';
import { availableParallelism, homedir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isObject, parseJson } from '../../../shared/json.ts';
import { Slots } from '../../../shared/scheduling/queues.ts';
import { background, now, scheduler } from '../../scheduling/fair-scheduler.ts';
import { findPython, type Namespaces, WAYS } from '../deepcoder/sandbox/isolation.ts';
import { killGroup, SandboxFailed } from '../deepcoder/sandbox/sandbox.ts';
import { DEFAULT_LEAN_MEMORY_MB, LEAN_MEMORY_VARIABLE, LEAN_VARIABLE } from '../variables.ts';
import {
  axiomsCommand,
  type Backend,
  BackendFailed,
  type LeanMessage,
  NO_ANSWER,
  sourceOf,
  type Theorem,
  type Verdict,
  verdictOfText,
} from './backend.ts';

const CONFINE = fileURLToPath(new URL('./confine.py', import.meta.url));
/** Exit status of `confine.py` on a machine that lacks a wall. */
const NO_WALLS = 97;
const MAX_REPLY_LENGTH = 16 * 1024 * 1024;
/** Address space that Lean reserves at its start and does not write to. */
const RESERVED_MB = 1280;
const STACK_KB = 65_536;
/** KiB that mimalloc reserves at a time, instead of a GiB. */
const ALLOCATOR = { MIMALLOC_ARENA_RESERVE: '65536' };
const PREFIX_MS = 10_000;
const SELF_TEST_MS = 60_000;
const MS_PER_S = 1000;
/** Milliseconds until Lean is looked for again on a machine without it. */
const RETRY_MS = 60_000;

/** Lean on this machine, and the walls around it. */
export interface LeanProgram {
  /** Command prefix: namespaces, then confine.py, up to its limits. */
  readonly command: readonly string[];
  readonly program: string;
  /** Folders that Lean may read: its own library and those of LEAN_PATH. */
  readonly folders: readonly string[];
}

const running = new Slots({ most: availableParallelism() });

/**
 * Checks each proof in a separate process, several at once.
 * @throws BackendFailed where there is no Lean
 */
export function processBackend(timeoutMs: number): Backend {
  return {
    async check(theorem, tactics) {
      const found = await findLean();
      if (typeof found === 'string') throw new BackendFailed(found);
      return checkWith(found, theorem, tactics, timeoutMs);
    },
  };
}

/**
 * Verdict of a separate Lean process; clients take turns.
 * @throws BackendFailed
 */
export async function checkWith(
  lean: LeanProgram,
  theorem: Theorem,
  tactics: readonly string[],
  timeoutMs: number,
): Promise<Verdict> {
  const turn = running.group((scheduler.current ?? background).client);
  await turn.take();
  try {
    const text = `${sourceOf(theorem, tactics)}\n${axiomsCommand(theorem)}\n`;
    const messages = await runLean(lean, text, timeoutMs);
    if (!Array.isArray(messages)) return messages as Verdict;
    return verdictOfText(theorem, tactics, messages);
  } finally {
    turn.release();
  }
}

/** Lean's output for a text, or a verdict where Lean does not finish. */
function runLean(
  { command, program, folders }: LeanProgram,
  text: string,
  timeoutMs: number,
): Promise<readonly LeanMessage[] | Verdict> {
  const memoryMb = Number(process.env[LEAN_MEMORY_VARIABLE]) || DEFAULT_LEAN_MEMORY_MB;
  const limits = [memoryMb + RESERVED_MB, Math.ceil(timeoutMs / MS_PER_S) + 1];
  const [first, ...rest] = [...command, ...limits.map(String), folders.join(':'), program];
  const child = spawn(first, [...rest, '--json', '--stdin', '-j1', `-s${STACK_KB}`, `-M${memoryMb}`], {
    stdio: ['pipe', 'pipe', 'pipe'],
    detached: true,
    cwd: '/',
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', LEAN_PATH: process.env.LEAN_PATH ?? '', ...ALLOCATOR },
  });
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      killGroup(child);
    };
    const timer = setTimeout(() => {
      end();
      resolve(NO_ANSWER);
    }, timeoutMs);
    const fail = (why: string) => {
      end();
      reject(new BackendFailed(why));
    };
    const chunks: Buffer[] = [];
    let size = 0;
    let said = '';
    child.on('error', error => fail(`Lean does not start: ${error.message}`));
    child.stdin.on('error', () => undefined);
    child.stdout.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      size += chunk.length;
      if (size > MAX_REPLY_LENGTH) {
        end();
        resolve({ status: 'rejected', messages: [`Lean said more than ${MAX_REPLY_LENGTH} bytes`] });
      }
    });
    child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
      said = (said + chunk).slice(-2000);
    });
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      if (code === NO_WALLS) return fail(`Lean is not run without walls: ${said.trim()}`);
      const messages = messagesIn(Buffer.concat(chunks).toString());
      // It ends with 1 where a message is an error.
      if (code === 0 || (code === 1 && messages.length > 0)) return resolve(messages);
      const how = code === null ? `by ${signal}` : `with code ${code}`;
      return resolve({ status: 'rejected', messages: [`Lean ended ${how}: ${lastLine(said)}`] });
    });
    child.stdin.end(text);
  });
}

/** Lines other than messages are a proof's output. */
function messagesIn(text: string): LeanMessage[] {
  return text.split('\n').map(parseJson).filter(isObject) as unknown[] as LeanMessage[];
}

const lastLine = (text: string): string => text.trim().split('\n').at(-1) ?? '';

let search:
  | { readonly settings: string; readonly found: Promise<LeanProgram | string>; staleAt: number }
  | undefined;

/**
 * Lean where it proves and is contained, or the reason why it is not used; looked up once for each setting of the
 * variables.
 */
export function findLean(): Promise<LeanProgram | string> {
  const { PATH, HOME, LEAN_PATH } = process.env;
  const settings = JSON.stringify([process.env[LEAN_VARIABLE], PATH, HOME, LEAN_PATH]);
  if (search?.settings === settings && now() < search.staleAt) return search.found;
  const begun = { settings, found: lookFor(), staleAt: Number.POSITIVE_INFINITY };
  begun.found.then(found => {
    if (typeof found === 'string') begun.staleAt = now() + RETRY_MS;
  });
  search = begun;
  return begun.found;
}

async function lookFor(): Promise<LeanProgram | string> {
  const path = leanPath();
  if (path === undefined)
    return `Lean is not installed: set ${LEAN_VARIABLE} to the path of lean, or install it with elan`;
  try {
    const faults: string[] = [];
    for (const lean of await confinedLean(path)) {
      const fault = await faultOf(lean);
      if (fault === undefined) return lean;
      faults.push(fault);
    }
    return `${path} is not used: ${[...new Set(faults)].join('; ')}`;
  } catch (error) {
    if (!(error instanceof BackendFailed || error instanceof SandboxFailed)) throw error;
    return `${path} is not used: ${error.message}`;
  }
}

function leanPath(): string | undefined {
  const named = process.env[LEAN_VARIABLE]?.trim();
  if (named) return named;
  const folders = [...(process.env.PATH ?? '').split(delimiter), join(homedir(), '.elan/bin')];
  return folders.map(folder => join(folder, 'lean')).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Ways to run Lean on this machine, strongest first. @throws BackendFailed where it does not start; SandboxFailed */
export async function confinedLean(path: string): Promise<LeanProgram[]> {
  const python = await findPython();
  const prefix = await prefixOf(path);
  // elan's `lean` on PATH selects and starts a toolchain; the toolchain's own program needs fewer permissions.
  const own = join(prefix, 'bin/lean');
  const program = realpathSync(existsSync(own) ? own : path);
  const listed = (process.env.LEAN_PATH ?? '').split(delimiter).filter(existsSync);
  const folders = [...new Set([prefix, dirname(program), ...listed])];
  const spaces = (Object.keys(WAYS) as Namespaces[]).filter(
    way => way !== 'root' || process.getuid?.() === 0,
  );
  return spaces.map(way => ({
    // Lean reads the path of its program from /proc.
    command: [...WAYS[way], ...(way === 'none' ? [] : ['--mount-proc']), python, '-I', '-S', '-B', CONFINE],
    program,
    folders,
  }));
}

/** The folder of Lean's own library. @throws BackendFailed */
function prefixOf(path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(path, ['--print-prefix'], {
      stdio: ['ignore', 'pipe', 'ignore'],
      timeout: PREFIX_MS,
    });
    let text = '';
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      text = (text + chunk).slice(0, MAX_REPLY_LENGTH);
    });
    child.on('error', error => reject(new BackendFailed(`it does not start: ${error.message}`)));
    child.on('close', code => {
      const prefix = text.trim();
      if (code === 0 && existsSync(prefix)) resolve(prefix);
      else reject(new BackendFailed('it does not say where its library is (lean --print-prefix)'));
    });
  });
}

const SELF_TEST: Theorem = {
  name: '',
  informal: '',
  header: '',
  statement: 'theorem ragen_self_test : 1 + 1 = 2 := by',
  proof: [],
};
/** A file that no proof may read. */
const OWN_FILE = fileURLToPath(import.meta.url);

/** Fault of a way to run Lean: a theorem is not proved, or a proof reads a file of the server. */
async function faultOf(lean: LeanProgram): Promise<string | undefined> {
  const proved = await checkWith(lean, SELF_TEST, ['rfl'], SELF_TEST_MS);
  if (proved.status !== 'proved')
    return `it does not prove 1 + 1 = 2: ${proved.messages[0] ?? proved.status}`;
  const hostile = [`have := include_str ${JSON.stringify(OWN_FILE)}`, 'rfl'];
  const read = await checkWith(lean, SELF_TEST, hostile, SELF_TEST_MS);
  return read.status === 'rejected' ? undefined : 'a proof reads files of the server';
}
