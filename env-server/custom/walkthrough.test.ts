import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { listen } from './remote/service.test-data.ts';

/** Runs docs/custom-environments.md against a real server, as its reader would. */

t.setTimeout(110_000);

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PAGE = readFileSync(`${ROOT}docs/custom-environments.md`, 'utf8');
const SERVER = /^npm run env-server -- (.*)$/;
const SERVICE = /^(python3|node) (docs\/examples\/\S+) --port (\d+)$/;
const ANYTHING = '…';

interface Block {
  readonly language: string;
  readonly text: string;
  readonly line: number;
}

function blocksOf(page: string): Block[] {
  return [...page.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map(match => ({
    language: match[1],
    text: match[2].trim(),
    line: page.slice(0, match.index).split('\n').length,
  }));
}

const has = (command: string): boolean => spawnSync(command, ['--version']).status === 0;

async function freePort(): Promise<number> {
  const server = createServer();
  const port = await listen(server);
  await new Promise(resolve => server.close(resolve));
  return port;
}

/** Starts a program and waits until it says that it listens. */
async function start(t: Test, command: string, args: string[]): Promise<ChildProcess> {
  const child = spawn(command, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  for await (const line of createInterface({ input: child.stdout! })) {
    if (line.includes('listening on')) return child;
  }
  throw new Error(`${command} ${args.join(' ')} ended before it listened`);
}

/** Whether a reply has what the page shows; lists must be as long, objects may have more. */
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

const missing = ['bash', 'curl'].filter(command => !has(command));

t.test(
  'every command of the page works',
  { skip: missing.length > 0 ? `needs ${missing.join(', ')}` : false },
  async t => {
    const blocks = blocksOf(PAGE);
    const folder = t.testdir();
    const ports = new Map<string, number>([['8080', await freePort()]]);
    const local = (text: string) =>
      [...ports].reduce((changed, [from, to]) => changed.replaceAll(`:${from}`, `:${to}`), text);
    const python = has('python3');
    let script = 'set -euo pipefail\n';
    let curls = 0;
    for (const [index, { language, text, line }] of blocks.entries()) {
      if (language !== 'sh') continue;
      const asServer = SERVER.exec(text);
      const asService = SERVICE.exec(text);
      if (asServer) {
        const flags = asServer[1].replace('./data', `${folder}/data`).split(' ');
        await start(t, process.execPath, [
          'env-server/main.ts',
          ...flags,
          '--port',
          String(ports.get('8080')),
        ]);
      } else if (asService) {
        const [, command, file, port] = asService;
        ports.set(port, await freePort());
        if (command === 'python3' && !python) continue;
        const program = command === 'node' ? process.execPath : command;
        await start(t, program, [file, '--port', String(ports.get(port))]);
      } else {
        t.match(text, /curl/, `line ${line}: only the server, the examples and curl are run`);
        if (text.includes(':9001') && !python) {
          t.pass(`line ${line}`, { skip: 'python3 is not installed' });
          continue;
        }
        curls++;
        const wanted = blocks[index + 1];
        t.equal(wanted?.language, 'json', `line ${line}: a reply is shown`);
        const { stdout } = await promisify(execFile)('bash', ['-c', `${script}${local(text)}`]);
        const reply = JSON.parse(stdout);
        if (!shows(reply, JSON.parse(local(wanted.text)))) {
          t.same(reply, JSON.parse(wanted.text), `line ${line}: the reply is as shown`);
        } else t.pass(`line ${line}: the reply is as shown`);
        const assigned = /^SESSION=\$\(([\s\S]*?)\)$/m.exec(text);
        if (assigned) script = `set -euo pipefail\nSESSION=${sessionOf(stdout)}\n`;
      }
    }
    t.ok(curls > 15, `${curls} commands were run`);
  },
);

function sessionOf(reply: string): string {
  return String(JSON.parse(reply).session_id);
}

t.test('the examples of the page are the examples of the reference', async t => {
  const { EXAMPLES } = await import('./examples.ts');
  const kinds = new Set(
    Object.values(EXAMPLES).map(({ value }) => (value.definition as { kind: string }).kind),
  );
  for (const kind of kinds) t.ok(PAGE.includes(`"kind": "${kind}"`), kind);
});

t.test('a registration survives kill -9', async t => {
  const folder = t.testdir();
  const port = await freePort();
  const args = ['env-server/main.ts', '--port', String(port), '--data', folder];
  const first = await start(t, process.execPath, args);
  const { EXAMPLES } = await import('./examples.ts');
  const response = await fetch(`http://127.0.0.1:${port}/v1/envs`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(EXAMPLES.tabular.value),
  });
  t.equal(response.status, 201);
  await response.json();
  first.kill('SIGKILL');
  await once(first, 'exit');
  await start(t, process.execPath, args);
  const found = await fetch(`http://127.0.0.1:${port}/v1/envs/demo%2FCrossing-v0`);
  t.match(await found.json(), { env_id: 'demo/Crossing-v0', title: 'River crossing' });
});
