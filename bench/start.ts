/**
 * What the environment server takes until it is ready: the processor time of its process by the kernel's count (user and
 * system, of all its threads), the time on the clock and its resident memory (VmRSS), all read when `/readyz` has answered for the
 * first time. One start goes before those that count: it keeps the compiled modules.
 *
 *     npm run bench:start [-- --starts 10 --program bin/ragen-env-server.js '--flags=--tokens file']
 *
 * Next to it, in turns, starts the least that answers: `node:http` alone. Their ratio is the same on a faster or slower processor.
 *
 * Of `--starts` the median counts. Without `--program` it starts what `npm run env-server` starts; with it, the file of an
 * installed package. `--flags` go to the server. Linux only.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism, loadavg } from 'node:os';
import { fileURLToPath } from 'node:url';
import { listening } from '../test/process.test-data.ts';
import { residentBytes } from '../test/process-memory.test-data.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { median, processorSeconds } from './measuring.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const REPOSITORY = ['--import', './bin/needs-node.js', 'env-server/main.ts'];
/** Says where it listens as the environment server does. */
const BARE_SERVER = `
  import { createServer } from 'node:http';
  const server = createServer((_, reply) => reply.end()).listen(0, '127.0.0.1', () => {
    console.log('ragen env-server listening on http://127.0.0.1:' + server.address().port + ' (playground: none)');
  });
`;
const BARE = ['--input-type=module', '--eval', BARE_SERVER];
const BYTES_PER_MB = 1e6;

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    starts: { type: 'string', default: '10' },
    program: { type: 'string' },
    flags: { type: 'string', default: '' },
  },
});
const starts = positiveInteger('starts', flags.starts);
const program = flags.program === undefined ? REPOSITORY : [flags.program];
const given = flags.flags.split(' ').filter(flag => flag !== '');

interface Start {
  readonly cpuMs: number;
  readonly clockMs: number;
  readonly megabytes: number;
}

async function start(args: readonly string[]): Promise<Start> {
  const began = performance.now();
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const { origin } = await listening(child);
  const reply = await fetch(`${origin}/readyz`);
  if (!reply.ok) throw new Error(`${origin}/readyz answered ${reply.status}: ${await reply.text()}`);
  const clockMs = performance.now() - began;
  const cpuMs = 1000 * processorSeconds(child.pid!);
  const megabytes = residentBytes(child.pid!, 'VmRSS') / BYTES_PER_MB;
  // Modules are kept for the next start.
  await reply.text();
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
  return { cpuMs, clockMs, megabytes };
}

const server = [...program, '--port', '0', ...given];
await start(server);
const measured: Start[] = [];
const bare: Start[] = [];
for (let n = 0; n < starts; n++) {
  measured.push(await start(server));
  bare.push(await start(BARE));
}
const cpuMs = (starts: readonly Start[]) => median(starts.map(each => each.cpuMs));
const of = (field: keyof Start) => {
  const values = measured.map(each => each[field]);
  return `${median(values).toFixed(0)} (${Math.min(...values).toFixed(0)} to ${Math.max(...values).toFixed(0)})`;
};
console.log(
  `node ${process.version}, ${availableParallelism()} cores, load ${loadavg()[0].toFixed(1)}; ${program.join(' ')} ${given.join(' ')}`,
);
console.log(`median of ${starts} starts, least to most`);
console.log(
  `processor time ${of('cpuMs')} ms, ${(cpuMs(measured) / cpuMs(bare)).toFixed(1)} times that of node:http alone`,
);
console.log(`on the clock   ${of('clockMs')} ms`);
console.log(`resident       ${of('megabytes')} MB`);
