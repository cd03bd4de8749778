import { collectDefaultMetrics, type Metric, Registry } from 'prom-client';
import { VERSION } from '../../../shared/program.ts';
import type { Services } from '../../operations/operation.ts';
import {
  type PartHealth,
  PERSISTENCE_PARTS,
  type PersistenceHealth,
} from '../../persistence/persistence-health.ts';
import { PROBLEMS } from '../../problems.ts';
import {
  type EnvironmentCounters,
  LATENCY_BOUNDS_S,
  LatencyHistogram,
} from '../../sessions/episodes/variant.ts';
import type { SessionManager } from '../../sessions/manager.ts';
import { SESSION_STATUSES, type SessionStatus } from '../../sessions/session.ts';
import type { SharedSessions } from '../../sessions/storage/shared-sessions.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import type { RequestCount } from './trace-requests.ts';

const MS_PER_S = 1000;

type Labels = { readonly [name: string]: string | number };

interface Sample {
  readonly labels: Labels;
  readonly value: number;
  readonly metricName?: string;
}

/**
 * Plain counters for the hot path, read only when metrics are scraped: prom-client's own counters hash their labels on
 * every call.
 */
function readMetric(
  name: string,
  help: string,
  type: 'counter' | 'gauge' | 'histogram',
  read: Read,
  aggregator: 'sum' | 'max' = 'sum',
) {
  const about = { name, help, type, aggregator };
  const get = async () => {
    const now = read() ?? [];
    return { ...about, values: typeof now === 'number' ? [{ labels: {}, value: now }] : now };
  };
  return { ...about, get, reset: () => undefined } as unknown as Metric;
}

/** Histogram bounds of single environments. There are many environments, so they have fewer bounds. */
const COARSE_BOUNDS_S: readonly number[] = [0.001, 0.01, 0.1, 1];

/** Sources of the metrics. */
export interface MetricSources {
  readonly services: Pick<Services, 'sessions' | 'catalog' | 'shared'>;
  readonly problemHandler: ProblemHandler;
  readonly requests: Iterable<RequestCount>;
  /** Number of open WebSocket connections. */
  readonly sockets: () => number;
  /** Present on a server with a data folder. */
  readonly persistence?: PersistenceHealth;
}

/** The registry behind `/metrics`. */
export function createMetrics(sources: MetricSources): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const { services, problemHandler, requests, persistence } = sources;
  const metrics = [
    ...processMetrics(sources),
    ...sessionMetrics(services),
    ...requestMetrics(problemHandler, requests),
    ...latencyMetrics(services.catalog),
    ...(persistence ? persistenceMetrics(persistence) : []),
    ...(services.shared ? storeMetrics(services.shared) : []),
  ];
  for (const metric of metrics) registry.registerMetric(metric);
  return registry;
}

/** A number is one sample without labels, undefined none. */
type Read = () => Sample[] | number | undefined;
type OfType = (name: string, help: string, read: Read, aggregator?: 'sum' | 'max') => Metric;

const counter: OfType = (name, help, read) => readMetric(name, help, 'counter', read);
const gauge: OfType = (name, help, read, aggregator) => readMetric(name, help, 'gauge', read, aggregator);

/** The version, and what this process holds now. */
function processMetrics({ services: { sessions }, sockets }: MetricSources): Metric[] {
  const labels = { version: VERSION, node: process.versions.node };
  return [
    gauge('ragen_build_info', 'The version that runs; always 1.', () => [{ labels, value: 1 }]),
    gauge('ragen_websockets', 'Open WebSocket connections.', sockets),
    gauge(
      'ragen_queue_depth',
      'Operations that wait for another one on their session.',
      () => sessions.waiting,
    ),
    gauge(
      'ragen_session_bytes',
      'Estimated memory of all sessions and of remembered replies.',
      () => sessions.bytes.used,
    ),
    gauge('ragen_session_bytes_limit', 'What they may take.', () => sessions.bytes.limits.maxBytes),
  ];
}

function sessionMetrics({ sessions, catalog }: MetricSources['services']): Metric[] {
  const perEnvironment = (key: 'sessions' | 'episodes' | 'faults') => (): Sample[] =>
    [...catalog.allCounters()].map(counters => ({
      labels: { env_id: counters.envId },
      value: counters[key],
    }));
  const endings = () =>
    Object.entries(sessions.endings).map(([ending, value]) => ({ labels: { ending }, value }));
  const unsaved = () => sessions.unsaved;
  return [
    counter('ragen_sessions_unsaved_total', 'Sessions that turned out not to be storable.', unsaved),
    gauge('ragen_sessions', 'Open sessions.', perEnvironment('sessions')),
    gauge(
      'ragen_sessions_by_state',
      'Open sessions, by what they are at: playing, at the end of an episode, failed, or busy with an operation.',
      () => statuses(sessions),
    ),
    counter('ragen_episodes_total', 'Episodes begun.', perEnvironment('episodes')),
    counter(
      'ragen_environment_faults_total',
      'Episodes ended by an exception in the environment.',
      perEnvironment('faults'),
    ),
    counter('ragen_sessions_ended_total', 'Sessions ended, by how.', endings),
  ];
}

function requestMetrics({ counts }: ProblemHandler, requests: Iterable<RequestCount>): Metric[] {
  const answered = () =>
    [...requests].map(({ method, route, status, count }) => ({
      labels: { method, route, status },
      value: count,
    }));
  return [
    counter('ragen_problems_total', 'Requests answered with a problem, by code.', () =>
      [...counts].map(([code, value]) => ({ labels: { code, status: PROBLEMS[code].status }, value })),
    ),
    counter('ragen_http_requests_total', 'Answered HTTP requests, by route and class of status.', answered),
  ];
}

function latencyMetrics(catalog: Services['catalog']): Metric[] {
  const [byEnvironment, ofAll] = ['ragen_operation_seconds', 'ragen_operation_latency_seconds'];
  return [
    readMetric(byEnvironment, 'Time of operations on sessions, by environment.', 'histogram', () =>
      [...catalog.allCounters()].flatMap(({ envId: env_id, latencies }) =>
        [...latencies].flatMap(([operation, latency]) =>
          histogramSamples(byEnvironment, { env_id, operation }, latency, COARSE_BOUNDS_S),
        ),
      ),
    ),
    readMetric(ofAll, 'Time of operations on sessions, finer, of all environments.', 'histogram', () =>
      [...ofAllEnvironments(catalog.allCounters())].flatMap(([operation, latency]) =>
        histogramSamples(ofAll, { operation }, latency, LATENCY_BOUNDS_S),
      ),
    ),
  ];
}

/** Metrics of a store that several servers share, as this server sees it. */
function storeMetrics(shared: SharedSessions): Metric[] {
  const { connection } = shared.store;
  return [
    counter(
      'ragen_sessions_taken_total',
      'Sessions that this server has taken over, or loaded again.',
      () => shared.taken,
    ),
    gauge('ragen_store_up', '1 while the store takes commands.', () =>
      connection.failure === undefined ? 1 : 0,
    ),
    counter(
      'ragen_store_errors_total',
      'Commands that the store refused or did not answer.',
      () => connection.errors,
    ),
  ];
}

/** Metrics of writes to the data folder. */
function persistenceMetrics(health: PersistenceHealth): Metric[] {
  const perPart = (value: (part: PartHealth) => number) => (): Sample[] =>
    PERSISTENCE_PARTS.map(part => ({ labels: { part }, value: value(health.parts[part]) }));
  return [
    gauge(
      'ragen_persistence_degraded',
      '1 while writes of this part fail: custom environments, checkpoints of sessions, the journal.',
      perPart(({ failing }) => (failing ? 1 : 0)),
      'max',
    ),
    counter(
      'ragen_persistence_failures_total',
      'Writes that failed.',
      perPart(({ failures }) => failures),
    ),
    gauge(
      'ragen_persistence_waiting_bytes',
      'Bytes in memory that are to be written when the disk takes them.',
      perPart(({ bytesWaiting }) => bytesWaiting),
    ),
    gauge(
      'ragen_checkpoint_age_seconds',
      'Time since sessions were last written at a checkpoint; absent before the first one.',
      () => seconds(health.age('checkpoint')),
      'max',
    ),
    counter(
      'ragen_checkpoint_failures_total',
      'Checkpoints that failed.',
      () => health.parts.checkpoint.failures,
    ),
    gauge('ragen_journal_bytes', 'Size of the journal on disk.', () => health.journalBytes()),
  ];
}

const seconds = (milliseconds: number | undefined) =>
  milliseconds === undefined ? undefined : milliseconds / MS_PER_S;

function statuses(sessions: SessionManager): Sample[] {
  const counts = new Map<SessionStatus, number>(SESSION_STATUSES.map(status => [status, 0]));
  for (const { status } of sessions.open()) counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts].map(([state, value]) => ({ labels: { state }, value }));
}

/** Latencies by operation, over all environments. */
function ofAllEnvironments(allCounters: Iterable<EnvironmentCounters>): Map<string, LatencyHistogram> {
  const all = new Map<string, LatencyHistogram>();
  for (const { latencies } of allCounters) {
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

/** @param bounds a subset of the counted bounds */
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
