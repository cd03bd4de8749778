import {
  AggregatorRegistry,
  Counter,
  collectDefaultMetrics,
  Gauge,
  type Metric,
  Registry,
} from 'prom-client';
import { PROBLEMS } from '../../shared/problems.ts';
import { VERSION } from '../../shared/version.ts';
import type { Services } from '../operations/operation.ts';
import { answered, type Peers } from '../operations/peers.ts';
import type { SessionManager } from '../sessions/manager.ts';
import { STANDINGS, type Standing } from '../sessions/session.ts';
import { type EnvironmentTally, LATENCY_BOUNDS_S, LatencyHistogram } from '../sessions/tally.ts';
import type { ProblemDesk } from './problems.ts';
import type { RequestCount } from './request-counts.ts';

type Labels = { readonly [name: string]: string | number };

interface Sample {
  readonly labels: Labels;
  readonly value: number;
  readonly metricName?: string;
}

/**
 * Counted in plain fields on the hot path and read only when somebody asks: prom-client's own counters
 * hash their labels on every call.
 */
function readMetric(
  name: string,
  help: string,
  type: 'counter' | 'gauge' | 'histogram',
  read: () => Sample[],
) {
  return {
    name,
    help,
    type,
    aggregator: 'sum',
    get: async () => ({ name, help, type, values: read(), aggregator: 'sum' }),
    reset: () => undefined,
  } as unknown as Metric;
}

/** Bounds of the histograms of single environments, which are many: a few of those by which is counted. */
const COARSE_BOUNDS_S: readonly number[] = [0.001, 0.01, 0.1, 1];

export const METRICS_TYPE = Registry.PROMETHEUS_CONTENT_TYPE;

/** The page, which stands for all processes that can be asked: sums, or averages of what measures one event loop. */
export async function metricsText(own: Registry, peers: Peers | undefined): Promise<string> {
  if (!peers) return own.metrics();
  const all = await answered(peers.askAll('metrics', null));
  return AggregatorRegistry.aggregate([await own.getMetricsAsJSON(), ...(all as object[])]).metrics();
}

/**
 * The registry behind `/metrics`.
 * @param restarts of this process, where it is one of several
 */
export function createMetrics(
  services: Services,
  desk: ProblemDesk,
  requests: Iterable<RequestCount>,
  sockets: () => number,
  restarts?: number,
): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const { sessions, catalogue } = services;
  const perEnvironment = (value: (tally: EnvironmentTally) => number) => (): Sample[] =>
    [...catalogue.tallies()].map(tally => ({ labels: { env_id: tally.envId }, value: value(tally) }));
  const gauge = (name: string, help: string, value: () => number) =>
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(value());
      },
    });

  if (restarts !== undefined) {
    gauge('ragen_workers', 'Processes that serve.', () => 1);
    new Counter({
      name: 'ragen_worker_restarts_total',
      help: 'Processes started again after they ended without being told to.',
      registers: [registry],
    }).inc(restarts);
  }
  new Gauge({
    name: 'ragen_build_info',
    help: 'The version that runs; always 1.',
    labelNames: ['version', 'node'],
    // All processes are of one version.
    aggregator: 'first',
    registers: [registry],
  }).set({ version: VERSION, node: process.versions.node }, 1);
  gauge('ragen_websockets', 'Open WebSocket connections.', sockets);
  gauge(
    'ragen_queue_depth',
    'Operations that wait for another one on their session.',
    () => sessions.waiting,
  );
  const metrics = [
    readMetric(
      'ragen_sessions',
      'Open sessions.',
      'gauge',
      perEnvironment(tally => tally.sessions),
    ),
    readMetric(
      'ragen_sessions_by_state',
      'Open sessions, by what they are at: playing, at the end of an episode, failed, or busy with an operation.',
      'gauge',
      () => standings(sessions),
    ),
    readMetric(
      'ragen_episodes_total',
      'Episodes begun.',
      'counter',
      perEnvironment(tally => tally.episodes),
    ),
    readMetric(
      'ragen_environment_faults_total',
      'Episodes ended by an exception in the environment.',
      'counter',
      perEnvironment(tally => tally.faults),
    ),
    readMetric('ragen_sessions_ended_total', 'Sessions ended, by how.', 'counter', () =>
      Object.entries(sessions.endings).map(([ending, value]) => ({ labels: { ending }, value })),
    ),
    readMetric('ragen_problems_total', 'Requests answered with a problem, by code.', 'counter', () =>
      [...desk.counts].map(([code, value]) => ({ labels: { code, status: PROBLEMS[code].status }, value })),
    ),
    readMetric(
      'ragen_http_requests_total',
      'Answered HTTP requests, by route and class of status.',
      'counter',
      () =>
        [...requests].map(({ method, route, status, count }) => ({
          labels: { method, route, status },
          value: count,
        })),
    ),
    readMetric(
      'ragen_operation_seconds',
      'Time of operations on sessions, by environment.',
      'histogram',
      () =>
        [...catalogue.tallies()].flatMap(({ envId, latencies }) =>
          [...latencies].flatMap(([operation, latency]) =>
            histogramSamples(
              'ragen_operation_seconds',
              { env_id: envId, operation },
              latency,
              COARSE_BOUNDS_S,
            ),
          ),
        ),
    ),
    readMetric(
      'ragen_operation_latency_seconds',
      'Time of operations on sessions, finer, of all environments.',
      'histogram',
      () =>
        [...ofAllEnvironments(catalogue.tallies())].flatMap(([operation, latency]) =>
          histogramSamples('ragen_operation_latency_seconds', { operation }, latency, LATENCY_BOUNDS_S),
        ),
    ),
  ];
  for (const metric of metrics) registry.registerMetric(metric);
  return registry;
}

function standings(sessions: SessionManager): Sample[] {
  const counts = new Map<Standing, number>(STANDINGS.map(standing => [standing, 0]));
  for (const { standing } of sessions.open()) counts.set(standing, (counts.get(standing) ?? 0) + 1);
  return [...counts].map(([state, value]) => ({ labels: { state }, value }));
}

/** Latencies by operation, whatever the environment. */
function ofAllEnvironments(tallies: Iterable<EnvironmentTally>): Map<string, LatencyHistogram> {
  const all = new Map<string, LatencyHistogram>();
  for (const { latencies } of tallies) {
    for (const [operation, { counts, sum }] of latencies) {
      const total = all.get(operation) ?? new LatencyHistogram();
      counts.forEach((count, bucket) => {
        total.counts[bucket] += count;
      });
      total.sum += sum;
      all.set(operation, total);
    }
  }
  return all;
}

/** @param bounds some of those by which was counted */
function histogramSamples(
  name: string,
  labels: Labels,
  { counts, sum }: LatencyHistogram,
  bounds: readonly number[],
): Sample[] {
  const metricName = `${name}_bucket`;
  const samples: Sample[] = [];
  let total = 0;
  counts.forEach((count, bucket) => {
    total += count;
    const le = LATENCY_BOUNDS_S[bucket];
    if (bounds.includes(le)) samples.push({ metricName, labels: { ...labels, le }, value: total });
  });
  samples.push({ metricName, labels: { ...labels, le: '+Inf' }, value: total });
  samples.push({ metricName: `${name}_sum`, labels, value: sum });
  samples.push({ metricName: `${name}_count`, labels, value: total });
  return samples;
}
