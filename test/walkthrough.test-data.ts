import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Test } from 'tap';
import { freePort } from './free-port.test-data.ts';

/**
 * Runs a page of the documentation as its reader would: starts the servers it starts, runs its curl lines against them,
 * and compares the replies with those it shows.
 */

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const SERVER = /^npm run env-server(?: -- (.*))?$/;
const SERVICE = /^(python3|npx node) (docs\/examples\/\S+) --port (\d+)$/;
const ASSIGNED = /^([A-Z][A-Z0-9_]*)=/gm;
/** Port of the server in the pages. */
const PAGE_PORT = '8080';
/** Placeholder in a shown reply for any value, or for any part of a text. */
const ANYTHING = '…';

interface Block {
  readonly language: string;
  readonly text: string;
  readonly line: number;
}

/** The fenced blocks of a page in Markdown. */
function blocksOf(page: string): Block[] {
  return [...page.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map(match => ({
    language: match[1],
    text: match[2].trim(),
    line: page.slice(0, match.index).split('\n').length,
  }));
}

const has = (command: string): boolean => spawnSync(command, ['--version']).status === 0;

const MISSING = ['bash', 'curl'].filter(command => !has(command));

/** For `t.test`: why pages cannot be run on this machine, or false. */
export const CANNOT_WALK = MISSING.length > 0 ? `needs ${MISSING.join(', ')}` : false;

/** The text of a page. @param path below the root of the repository */
export function readPage(path: string): string {
  return readFileSync(`${ROOT}${path}`, 'utf8');
}

/** Starts a program in the root of the repository and waits until it says that it listens. */
export async function startProgram(
  t: Pick<Test, 'teardown'>,
  command: string,
  args: readonly string[],
): Promise<ChildProcess> {
  const child = spawn(command, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  for await (const line of createInterface({ input: child.stdout! })) {
    if (line.includes('listening on')) return child;
  }
  throw new Error(`${command} ${args.join(' ')} ended before it listened`);
}

/** Starts an environment server as a separate process. */
export function startServer(t: Pick<Test, 'teardown'>, flags: readonly string[]): Promise<ChildProcess> {
  return startProgram(t, process.execPath, ['env-server/main.ts', ...flags]);
}

/** True if a reply has everything that the page shows; lists must be as long, objects may have more. */
function shows(found: unknown, wanted: unknown): boolean {
  if (typeof wanted === 'string') {
    if (wanted === ANYTHING) return found !== undefined;
    if (!wanted.includes(ANYTHING)) return found === wanted;
    const parts = wanted.split(ANYTHING).map(part => part.trim());
    return typeof found === 'string' && parts.every(part => found.includes(part));
  }
  if (typeof wanted !== 'object' || wanted === null) return found === wanted;
  if (typeof found !== 'object' || found === null) return false;
  if (Array.isArray(wanted) && (!Array.isArray(found) || found.length !== wanted.length)) return false;
  return Object.entries(wanted).every(([key, value]) =>
    shows((found as { [key: string]: unknown })[key], value),
  );
}

/** Rules that pages must keep. */
export interface WalkRules {
  /** Every block with curl is followed by its reply in JSON. */
  readonly everyReplyShown?: boolean;
  /** Blocks of `sh` that are neither the server, nor an example, nor curl: skipped or run; refused unless set. */
  readonly otherCommands?: 'skip' | 'run';
  /** Port of a server that runs already, for pages that start one without flags. */
  readonly server?: string;
}

/**
 * Runs a page. `npm run env-server` is started on a free port in place of 8080, the examples of `docs/examples`
 * likewise; a block with curl runs in bash, in a separate folder, with the variables of the blocks before it. Where the
 * block after it is JSON, that is what it must print; where not, every curl must be answered with a success.
 * @param path of the page, below the root of the repository
 * @returns how many blocks with curl were run
 */
export async function walkThrough(t: Test, path: string, rules: WalkRules = {}): Promise<number> {
  const blocks = blocksOf(readPage(path));
  const walk = new Walk(t.testdir({ vars: '' }));
  const python = has('python3');
  let curls = 0;
  for (const [index, { language, text, line }] of blocks.entries()) {
    if (language !== 'sh') continue;
    const asServer = SERVER.exec(text);
    const asService = SERVICE.exec(text);
    if (asServer) {
      const flags = asServer[1]?.replace('./data', `${walk.folder}/data`).split(' ') ?? [];
      if (rules.server !== undefined && flags.length === 0) walk.setPort(PAGE_PORT, rules.server);
      else await startServer(t, [...flags, '--port', await walk.portFor(PAGE_PORT)]);
    } else if (asService) {
      const [, command, file, port] = asService;
      const own = await walk.portFor(port);
      if (command === 'python3' && !python) walk.absent.add(port);
      else await startProgram(t, command === 'npx node' ? process.execPath : command, [file, '--port', own]);
    } else if (!text.includes('curl')) {
      if (rules.otherCommands === 'run') {
        await walk.run(text, false);
        t.pass(`line ${line}: it works`);
      } else if (!rules.otherCommands) t.fail(`line ${line}: only the server, the examples and curl are run`);
    } else if ([...walk.absent].some(port => text.includes(`:${port}`))) {
      t.pass(`line ${line}`, { skip: 'python3 is not installed' });
    } else {
      curls++;
      const next = blocks[index + 1];
      const wanted = next?.language === 'json' ? next.text : undefined;
      if (rules.everyReplyShown) t.ok(wanted, `line ${line}: a reply is shown`);
      const printed = await walk.run(text, wanted === undefined);
      if (wanted === undefined) t.pass(`line ${line}: it works`);
      else {
        const reply: unknown = JSON.parse(printed);
        const shown: unknown = JSON.parse(walk.local(wanted));
        if (shows(reply, shown)) t.pass(`line ${line}: the reply is as shown`);
        else t.same(reply, shown, `line ${line}: the reply is as shown`);
      }
    }
  }
  return curls;
}

/** State that a page's blocks share: ports and variables. */
class Walk {
  readonly folder: string;
  /** Ports of the page's programs that cannot be started on this machine. */
  readonly absent = new Set<string>();
  readonly #ports = new Map<string, string>();

  /** @param folder with an empty file `vars` */
  constructor(folder: string) {
    this.folder = folder;
  }

  /** The port in place of one of the page. */
  async portFor(port: string): Promise<string> {
    const own = this.#ports.get(port) ?? String(await freePort());
    this.#ports.set(port, own);
    return own;
  }

  /** Uses a port in place of one of the page. */
  setPort(port: string, own: string): void {
    this.#ports.set(port, own);
  }

  /** A text of the page with the ports that are really used, and the examples where they are. */
  local(text: string): string {
    let changed = text.replaceAll('docs/examples/', `${ROOT}docs/examples/`);
    for (const [from, to] of this.#ports) changed = changed.replaceAll(`:${from}`, `:${to}`);
    return changed;
  }

  /** `npm run trainer -- …` starts the trainer in the folder of the walk, on the server of the page. */
  #npm(): string {
    const servers = `servers=[{url: "http://127.0.0.1:${this.#ports.get(PAGE_PORT)}"}]`;
    return `npm() { [ "$1 $2 $3" = "run trainer --" ]; shift 3; '${process.execPath}' '${ROOT}trainer/main.ts' "$@" '${servers}'; }`;
  }

  /** Runs a block and gives what it printed. @param strict every curl must be answered with a success */
  async run(text: string, strict: boolean): Promise<string> {
    const names = [...text.matchAll(ASSIGNED)].map(match => match[1]);
    const script = [
      'set -euo pipefail; source ./vars',
      this.#npm(),
      ...(strict ? ['curl() { command curl --fail-with-body "$@"; }'] : []),
      this.local(text),
      ...(names.length > 0 ? [`declare -p ${names.join(' ')} >> ./vars`] : []),
    ].join('\n');
    const { stdout } = await promisify(execFile)('bash', ['-c', script], { cwd: this.folder });
    return stdout;
  }
}
