import { Command, InvalidArgumentError } from 'commander';
import { openProgress } from '../trainer/tracking/progress.ts';
import { reportText } from './soak/report.ts';
import { runStage, type StageReport } from './soak/stage.ts';

/**
 * A bounded load of mixed operations with faults, over every transport: `npm run soak`. Every client compares the
 * replies with what it has seen; the status is 1 if anything is wrong.
 */

const number = (least: number) => (text: string) => {
  const value = Number(text);
  if (text.trim() === '' || !(value >= least)) {
    throw new InvalidArgumentError(`Expected a number of at least ${least}.`);
  }
  return value;
};

interface Options {
  readonly seconds: number;
  readonly clients: number;
  readonly ttl: number;
  readonly replicas: number[];
  readonly seed: number;
  readonly limitMs: number;
}

const options = new Command('soak')
  .description(
    'Plays with all faults on a separate server, and checks that nothing is lost, doubled or leaked.',
  )
  .option('--seconds <n>', 'time played, shared by all stages', number(1), 120)
  .option('--clients <n>', 'connections at once', number(1), 16)
  .option('--replicas <n,…>', 'processes of the server, a stage for each number', toNumbers, [1, 2])
  .option('--ttl <n>', 'idle seconds after which sessions expire', number(1), 10)
  .option('--limit-ms <n>', "most that the p99 of another client's requests may be in a flood", number(1), 50)
  .option('--seed <n>', 'of all that is drawn', number(0), 1)
  .parse()
  .opts<Options>();

function toNumbers(text: string): number[] {
  return text.split(',').map(number(1));
}

const stopped = new AbortController();
process.on('SIGINT', () => {
  if (stopped.signal.aborted) process.exit(1);
  stopped.abort();
});

const progress = openProgress(process.stderr);
const reports: StageReport[] = [];
for (const replicas of options.replicas) {
  if (stopped.signal.aborted) break;
  const { clients, ttl: ttlSeconds, seed, limitMs } = options;
  const seconds = options.seconds / options.replicas.length;
  reports.push(
    await runStage({ replicas, seconds, clients, ttlSeconds, seed, limitMs }, progress, stopped.signal),
  );
}
console.log(reportText(reports));
process.exitCode = reports.some(({ violations }) => violations.length > 0) || stopped.signal.aborted ? 1 : 0;
