import { createHistogram } from 'node:perf_hooks';

/**
 * Loaded into a server (`--import`): measures how long its event loop is blocked. In every millisecond in which the loop is
 * free it reads the processor time of its thread since the last reading, which excludes other programs on the machine.
 * On a message from its parent it reports the times and resets them.
 */

/** Milliseconds that the event loop was held at a time. */
export interface LoopHeld {
  readonly p99: number;
  readonly most: number;
}

const LOOK_MS = 1;
const MICROSECONDS_PER_MS = 1000;

const held = createHistogram();
let before = usedMicroseconds();

setInterval(() => {
  const now = usedMicroseconds();
  held.record(Math.max(1, now - before));
  before = now;
}, LOOK_MS).unref();

// V8 keeps the pages that its heap no longer needs, and gives them back with a collection that is to save memory, as it does
// by itself when it has not collected for 100 s.
process.on('SIGUSR2', () => globalThis.gc?.({ type: 'major', execution: 'sync', flavor: 'last-resort' }));

// A server of several processes passes this module on to the others, which have their own channels and messages.
if (process.argv[1]?.endsWith('main.ts')) {
  process.on('message', () => {
    const report: LoopHeld = {
      p99: held.percentile(99) / MICROSECONDS_PER_MS,
      most: held.max / MICROSECONDS_PER_MS,
    };
    held.reset();
    process.send?.(report);
  });
  process.channel?.unref();
}

function usedMicroseconds(): number {
  const { user, system } = process.threadCpuUsage();
  return user + system;
}
