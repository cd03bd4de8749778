/** Upper bounds of the latency buckets, in seconds. */
export const LATENCY_BOUNDS_S = [
  0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
  0.05, 0.1, 0.25, 1, 5,
] as const;

/** Counts of durations by bucket; the last bucket is unbounded. */
export class LatencyHistogram {
  readonly counts = new Float64Array(LATENCY_BOUNDS_S.length + 1);
  sum = 0;

  record(seconds: number): void {
    let bucket = 0;
    while (bucket < LATENCY_BOUNDS_S.length && seconds > LATENCY_BOUNDS_S[bucket]) bucket++;
    this.counts[bucket]++;
    this.sum += seconds;
  }
}

/** Counters of one environment id, over all configurations. */
export class EnvironmentCounters {
  readonly envId: string;
  sessions = 0;
  episodes = 0;
  faults = 0;
  readonly latencies = new Map<string, LatencyHistogram>();

  constructor(envId: string) {
    this.envId = envId;
  }

  record(operation: string, seconds: number): void {
    let histogram = this.latencies.get(operation);
    if (!histogram) {
      histogram = new LatencyHistogram();
      this.latencies.set(operation, histogram);
    }
    histogram.record(seconds);
  }
}
