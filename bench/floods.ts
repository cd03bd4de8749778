import { Command } from 'commander';
import { ATTACKS } from './floods/attacks.ts';
import { type FloodReport, flood } from './floods/flood.ts';
import { ServerProcess } from './server-process.ts';
import { inMb } from './soak/memory.ts';

/**
 * What other clients notice while one client floods the server: `npm run bench:floods`. Server, flooder and the other
 * client are three processes. The status is 1 where the 99th percentile of another client's requests is above the limit.
 */

const options = new Command('bench:floods')
  .option('--seconds <n>', 'length of each attack', Number, 4)
  .option('--only <text>', 'attacks whose name contains it', '')
  .option('--limit-ms <n>', 'most that the 99th percentile may be', Number, 50)
  .parse()
  .opts<{ seconds: number; only: string; limitMs: number }>();

const row = ({ name, livez, step, rssBytes }: FloodReport): string => {
  const times = [livez.p50, livez.p99, livez.most, step.p50, step.p99].map(ms => ms.toFixed(1));
  return `| ${[name, ...times, ...rssBytes.map(inMb)].join(' | ')} |`;
};

console.log('| attack | /livez p50 ms | p99 | most | step p50 ms | p99 | memory before | peak | after |');
console.log('|---|---|---|---|---|---|---|---|---|');
for (const [number, { name }] of ATTACKS.entries()) {
  if (!name.includes(options.only)) continue;
  const server = new ServerProcess([]);
  await server.start();
  try {
    const report = await flood(number, server.origin, server.pid, options.seconds);
    console.log(row(report));
    const worst = Math.max(report.livez.p99, report.step.p99);
    if (worst > options.limitMs) process.exitCode = 1;
  } finally {
    await server.end('SIGKILL');
  }
}
