import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Command, Option } from 'commander';
import { hashToken } from '../../env-server/transports/access/auth.ts';
import { type FuzzReport, fuzz } from './fuzzer.ts';
import { fuzzOrs } from './ors.ts';

/** `npm run fuzz:api`: against a server that it starts, or a running one. */

const SERVER = fileURLToPath(new URL('../../env-server/main.ts', import.meta.url));
/** Of the server that is started: the second token may play only. */
const TOKENS = ['fuzz-all', 'fuzz-play'];
/** Low enough that they are reached. */
const LIMITS = ['--max-sessions', '3000', '--max-custom-environments', '5', '--max-batch-items', '64'];

const options = new Command('fuzz:api')
  .description('Sends requests made from the OpenAPI document, fitting and broken, and checks every answer.')
  .option('--requests <n>', 'requests, frames of one socket counted once', Number, 10_000)
  .option('--seed <n>', 'the same seed makes the same requests; drawn when absent', Number)
  .option('--origin <url>', 'a server that runs already; one is started when absent')
  .addOption(
    new Option(
      '--transport <name>',
      'the routes of the OpenAPI document, or those of a transport for clients of others',
    )
      .choices(['api', 'ors'])
      .default('api'),
  )
  .option('--token <token...>', 'of that server; the first should have every scope')
  .parse()
  .opts<{ requests: number; seed?: number; origin?: string; token?: string[]; transport: 'api' | 'ors' }>();

async function startServer(): Promise<{ origin: string; child: ChildProcess }> {
  const tokens = JSON.stringify([
    { name: 'all', sha256: hashToken(TOKENS[0]), scopes: ['play', 'register', 'admin'] },
    { name: 'play', sha256: hashToken(TOKENS[1]), scopes: ['play'] },
  ]);
  const child = spawn(process.execPath, [SERVER, '--port', '0', '--tokens', tokens, ...LIMITS], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  process.on('exit', () => child.kill());
  for await (const line of createInterface({ input: child.stdout! })) {
    const match = /listening on (http:\/\/[\d.:]+)/.exec(line);
    if (match) return { origin: match[1], child };
  }
  throw new Error('the server ended before it listened');
}

function print({ requests, seed, answers, faults }: FuzzReport): void {
  console.log('| what | answers |');
  console.log('|---|---|');
  for (const [what, counts] of [...answers].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const parts = [...counts].sort(([, a], [, b]) => b - a).map(([answer, count]) => `${answer}: ${count}`);
    console.log(`| ${what} | ${parts.join(', ')} |`);
  }
  for (const { where, complaint, example, count } of faults) {
    console.log(`\n${where}: ${complaint} (${count} times)\n  ${example}`);
  }
  console.log(`\n${requests} requests, seed ${seed}: ${faults.length} kinds of faults`);
}

const seed = options.seed ?? Math.floor(Math.random() * 2 ** 31);
console.log(`seed ${seed}`);
const server = options.origin === undefined ? await startServer() : undefined;
let died: string | undefined;
server?.child.on('exit', (code, signal) => {
  died = `the server ended with ${code ?? signal}`;
});
const origin = options.origin ?? server!.origin;
const tokens = options.origin === undefined ? TOKENS : (options.token ?? ['']);
const { requests } = options;
const report =
  options.transport === 'ors'
    ? await fuzzOrs({ origin, token: tokens[0], requests, seed })
    : await fuzz({
        origin,
        tokens,
        requests,
        seed,
        progress: sent => process.stderr.write(`\r${sent} of ${requests} requests`),
      });
process.stderr.write('\n');
print(report);
if (died !== undefined) console.log(died);
process.exitCode = report.faults.length > 0 || died !== undefined ? 1 : 0;
if (server && died === undefined) {
  server.child.kill('SIGTERM');
  await once(server.child, 'exit');
}
