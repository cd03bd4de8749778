import { Command } from 'commander';
import { ATTACKS } from './floods/attacks.ts';
import { type FloodReport, flood } from './floods/flood.ts';
import { ServerProcess } from './server-process.ts';
import { inMb } from './soak/memory.ts';

/**
 * What other clients notice while one client floods the server: `npm run bench:floods`. Server, flooder and the other
 * client are three processes, which on a busy machine wait for a processor: net times are without that. "loop" is the
 * processor time for which the server's event loop was held at a time. The status is 1 where the net 99th percentile of
 * another client's requests is above the limit.
 */

const options = new Command('bench:floods')
  .option('--seconds <n>', 'length of each attack', Number, 4)
  .option('--only <text>', 'attacks with this text in their name', '')
  .option('--limit-ms <n>', 'most that the net 99th percentile may be', Number, 50)
  .parse()
  .opts<{ seconds: number; only: string; limitMs: number }>();

const row = ({ name, livez, step, loop, rssBytes }: FloodReport): string => {
  const own = Math.max(livez.ownP99, step.ownP99);
  const times = [
    ...[livez.p50, livez.p99, livez.netP99, step.p50, step.p99, step.netP99],
    ...[own, loop.p99, loop.most],
  ].map(ms => ms.toFixed(1));
  return `| ${[name, ...times, ...rssBytes.map(inMb)].join(' | ')} |`;
};

const HEAD = [
  ...['attack', '/livez p50 ms', 'p99', 'net p99', 'step p50 ms', 'p99', 'net p99', 'client waited p99'],
  ...['loop p99', 'loop most', 'memory before', 'peak', 'after'],
];
console.log(`| ${HEAD.join(' | ')} |`);
console.log(`|${'---|'.repeat(HEAD.length)}`);
for (const [number, { name }] of ATTACKS.entries()) {
  if (!name.includes(options.only)) continue;
  const server = new ServerProcess([]);
  await server.start();
  try {
    const report = await flood(number, server, options.seconds);
    console.log(row(report));
    const worst = Math.max(report.livez.netP99, report.step.netP99);
    if (worst > options.limitMs) process.exitCode = 1;
  } finally {
    await server.end('SIGKILL');
  }
}
