import { availableParallelism } from 'node:os';
import { InvalidConfig } from '../core/environment.ts';
import { configSchema, type DeepCoderConfig } from './config.ts';
import type { QueueLimits } from './sandbox/fair-queue.ts';
import type { JobLimits } from './sandbox/sandbox.ts';
import { type DeepCoderVariable, readVariable } from './variables.ts';

type Limit = keyof JobLimits;

const CEILINGS: { readonly [limit in Limit]: DeepCoderVariable } = {
  cpu_s: 'RAGEN_DEEPCODER_MAX_CPU_SECONDS',
  wall_s: 'RAGEN_DEEPCODER_MAX_WALL_SECONDS',
  total_s: 'RAGEN_DEEPCODER_MAX_TOTAL_SECONDS',
  memory_mb: 'RAGEN_DEEPCODER_MAX_MEMORY_MB',
  output_bytes: 'RAGEN_DEEPCODER_MAX_OUTPUT_BYTES',
};
const MAX_TESTS: DeepCoderVariable = 'RAGEN_DEEPCODER_MAX_TESTS';
const LIMITS = Object.keys(CEILINGS) as Limit[];

/** Highest limits that players may set on this server. */
export function ceilings(): { readonly [limit in Limit | 'tests']: number } {
  const limits = Object.fromEntries(LIMITS.map(limit => [limit, readVariable(CEILINGS[limit])]));
  return { ...(limits as { [limit in Limit]: number }), tests: readVariable(MAX_TESTS) };
}

/** @throws InvalidConfig naming the first ceiling that is exceeded; a default is cut down instead */
export function checkCeilings(config: DeepCoderConfig): void {
  for (const limit of LIMITS) {
    const [value, most] = [config[limit], readVariable(CEILINGS[limit])];
    const { default: standard } = configSchema.properties[limit] as { default?: number };
    if (value > most && value !== standard) {
      throw new InvalidConfig(
        `/${limit}`,
        `${limit} is ${value}; the ceiling of this server is ${most}, which its operator sets with ${CEILINGS[limit]}`,
      );
    }
  }
}

/** Why this many tests are refused; undefined where they are not. */
export function tooManyTests(count: number): string | undefined {
  const most = readVariable(MAX_TESTS);
  if (count <= most) return undefined;
  return `there are ${count} tests; the ceiling of this server is ${most}, which its operator sets with ${MAX_TESTS}`;
}

/** The limits of an episode. */
export function limitsOf(config: DeepCoderConfig): { readonly [limit in Limit]: number } {
  const most = ceilings();
  const limits = Object.fromEntries(LIMITS.map(limit => [limit, Math.min(config[limit], most[limit])]));
  return limits as { [limit in Limit]: number };
}

/** Limits of the queue in which programs wait for this machine. */
export function queueLimits(): QueueLimits {
  return {
    slots: readVariable('RAGEN_DEEPCODER_SLOTS') || availableParallelism(),
    guestSlots: readVariable('RAGEN_DEEPCODER_GUEST_SLOTS'),
    queueLength: readVariable('RAGEN_DEEPCODER_QUEUE_LENGTH'),
    queueSeconds: readVariable('RAGEN_DEEPCODER_QUEUE_SECONDS'),
  };
}
