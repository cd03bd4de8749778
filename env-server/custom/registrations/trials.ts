import { setTimeout as delay } from 'node:timers/promises';
import type { JsonObject } from '../../../shared/json.ts';
import { type CheckOptions, checkEnvironment } from '../../environments/core/checker/checker.ts';
import type { CheckReport } from '../../environments/core/checker/play.ts';
import type { AnyEnvironment } from '../../environments/core/environment.ts';
import { Problem } from '../../problems.ts';
import { type BuildContext, buildInSlices, learnFacts, type OwnedDefinition } from '../builder.ts';
import type { Definition } from '../definitions/definition.ts';

/** Trials load the whole server, so few run at a time, and one principal leaves room for others. */
const MAX_TRIALS = 8;
const MAX_TRIALS_PER_PRINCIPAL = 4;
/** Further trials, for principals that have none running. */
const MAX_GUEST_TRIALS = 4;
const MS_PER_S = 1000;
const MICROSECONDS_PER_MS = 1000;

/** Extent of a trial: its episodes, and its time limit from the first request to the last. */
interface TrialExtent {
  readonly check: CheckOptions;
  readonly totalMs: number;
  /** Most times that the limit is given again while the server has less than half a processor; 1 if absent. */
  readonly slowdown?: number;
}

const EXTENT: TrialExtent = { check: { budgetMs: 5000 }, totalMs: 30_000 };
/** A script computes and never waits: on a busy machine it only takes longer. */
const SCRIPT_EXTENT: TrialExtent = { ...EXTENT, slowdown: 10 };
/** Fewer episodes for a service, which may be far away. */
const REMOTE_EXTENT: TrialExtent = { check: { episodes: 2, steps: 10, budgetMs: 20_000 }, totalMs: 60_000 };

/** A check of a service that takes longer may have waited until connections that the service does not serve were closed. */
const SLOW_CHECK_MS = 10_000;

/** An environment that passed. */
export interface PassedTrial {
  readonly environment: AnyEnvironment;
  readonly facts: JsonObject;
  readonly report: CheckReport;
}

/** Builds and plays environments before they are offered. */
export class Trials {
  readonly #context: BuildContext;
  /** Number of trials by principal. */
  readonly #running = new Map<string, number>();
  readonly #totalMs: number;
  readonly #slowMs: number;

  /**
   * @param totalMs time limit of every trial, even where its kind allows more
   * @param slowMs time from which the check of a service has a hint
   */
  constructor(context: BuildContext, totalMs = Number.POSITIVE_INFINITY, slowMs = SLOW_CHECK_MS) {
    this.#context = context;
    this.#totalMs = totalMs;
    this.#slowMs = slowMs;
  }

  /**
   * Makes an environment from its definition and plays it.
   * @throws Problem `invalid_request`, `check_failed`, `environment_in_use`, `too_many_requests`
   */
  tryOut(principal: string, owned: OwnedDefinition): Promise<PassedTrial> {
    const { envId, definition } = owned;
    const extent = extentOf(definition.kind);
    return this.#inTurn(principal, envId, extent, async () => {
      const { registry } = this.#context;
      const facts = await learnFacts(owned, this.#context);
      const { environment, warnings } = await buildInSlices(owned, facts, this.#context);
      const base = definition.kind === 'composed' ? registry.get(definition.env_id) : undefined;
      const begun = performance.now();
      const checked = await checkEnvironment(environment, extent.check);
      const hints = this.#hints(definition, performance.now() - begun);
      const report = { ...checked, warnings: [...warnings, ...(checked.warnings ?? []), ...hints] };
      if (!report.passed) throw checkFailed(report);
      if (base && registry.find(base.spec.id) !== base) {
        throw new Problem('environment_in_use', `${base.spec.id} changed meanwhile; try again`);
      }
      return { environment, facts, report };
    });
  }

  /**
   * Plays an existing environment.
   * @param kind kind of a custom environment; undefined for a built-in one
   * @throws Problem `check_failed` when it takes too long, `too_many_requests`
   */
  check(principal: string, environment: AnyEnvironment, kind: string | undefined): Promise<CheckReport> {
    const extent = extentOf(kind);
    return this.#inTurn(principal, environment.spec.id, extent, () =>
      checkEnvironment(environment, extent.check),
    );
  }

  #hints(definition: Definition, ms: number): string[] {
    const isOpen = definition.kind === 'remote' && definition.connections === undefined;
    if (!isOpen || ms < this.#slowMs) return [];
    const took = `the check took ${Math.round(ms / MS_PER_S)} s`;
    return [
      `${took}: for a service that serves one connection at a time set "connections": 1 in its definition`,
    ];
  }

  /** A trial that takes too long is abandoned, and counts until everything it has begun is done. */
  async #inTurn<T>(
    principal: string,
    envId: string,
    extent: TrialExtent,
    work: () => Promise<T>,
  ): Promise<T> {
    const own = this.#running.get(principal) ?? 0;
    if (own >= MAX_TRIALS_PER_PRINCIPAL) throw busy(MAX_TRIALS_PER_PRINCIPAL, 'of one token ');
    const all = [...this.#running.values()].reduce((sum, running) => sum + running, 0);
    const most = own === 0 ? MAX_TRIALS + MAX_GUEST_TRIALS : MAX_TRIALS;
    if (all >= most) throw busy(most, '');
    this.#running.set(principal, own + 1);
    const done = work().finally(() => this.#release(principal));
    const watch = new AbortController();
    const late = this.#late(envId, extent, watch.signal);
    late.catch(() => undefined);
    try {
      return await Promise.race([done, late]);
    } finally {
      done.catch(() => undefined);
      watch.abort();
    }
  }

  /** @throws Problem `check_failed` when the time of a trial is over */
  async #late(envId: string, { totalMs, slowdown = 1 }: TrialExtent, signal: AbortSignal): Promise<never> {
    const mostMs = Math.min(totalMs, this.#totalMs);
    let tookMs = 0;
    for (let isBusy = true; isBusy && tookMs < slowdown * mostMs; tookMs += mostMs) {
      const before = process.cpuUsage();
      await delay(mostMs, undefined, { signal, ref: false });
      const { user, system } = process.cpuUsage(before);
      isBusy = (user + system) / MICROSECONDS_PER_MS < mostMs / 2;
    }
    throw new Problem('check_failed', `the check of ${envId} took more than ${tookMs / MS_PER_S} s`);
  }

  #release(principal: string): void {
    const left = (this.#running.get(principal) ?? 1) - 1;
    if (left > 0) this.#running.set(principal, left);
    else this.#running.delete(principal);
  }
}

function busy(limit: number, scope: string): Problem {
  return new Problem(
    'too_many_requests',
    `${limit} environments ${scope}are being checked, the most at a time`,
  );
}

function extentOf(kind: string | undefined): TrialExtent {
  if (kind === 'script') return SCRIPT_EXTENT;
  return kind === 'remote' ? REMOTE_EXTENT : EXTENT;
}

function checkFailed({ env_id, findings }: CheckReport): Problem {
  const violations = findings.map(({ rule, message, where }) => ({
    pointer: '/definition',
    detail: `${rule}: ${message}${where ? ` (${where})` : ''}`,
  }));
  const [first] = violations;
  return new Problem('check_failed', `${env_id} was not accepted: ${first.detail}`, { violations });
}
