import type { JsonObject } from '../../shared/json.ts';
import { Problem } from '../../shared/problems.ts';
import { type CheckOptions, checkEnvironment } from '../environments/checker/checker.ts';
import type { CheckReport } from '../environments/checker/report.ts';
import type { AnyEnvironment } from '../environments/environment.ts';
import { buildEnvironment, learnFacts, type Workshop } from './build.ts';
import type { Definition } from './definition.ts';

/** Trials are work for the whole server, so only some run at a time. */
const MOST_TRIALS = 4;
const RETRY_AFTER_SECONDS = 1;
const EXTENT: CheckOptions = { budgetMs: 5000 };
/** A service that may be far away is spared. */
const REMOTE_EXTENT: CheckOptions = { episodes: 2, steps: 10, budgetMs: 20_000 };

/** An environment that passed. */
export interface Trial {
  readonly environment: AnyEnvironment;
  readonly facts: JsonObject;
  readonly report: CheckReport;
}

/** Makes and plays environments before anybody else does. */
export class Trials {
  readonly #workshop: Workshop;
  #running = 0;

  constructor(workshop: Workshop) {
    this.#workshop = workshop;
  }

  /**
   * Makes an environment from its definition and plays it.
   * @throws Problem `invalid_request`, `check_failed`, `environment_in_use`, `too_many_requests`
   */
  tryOut(envId: string, definition: Definition): Promise<Trial> {
    return this.#inTurn(async () => {
      const { registry } = this.#workshop;
      const facts = await learnFacts(envId, definition, this.#workshop);
      const environment = buildEnvironment(envId, definition, facts, this.#workshop);
      const base = definition.kind === 'composed' ? registry.get(definition.env_id) : undefined;
      const report = await checkEnvironment(environment, extentOf(definition.kind));
      if (!report.passed) throw checkFailed(report);
      if (base && registry.find(base.spec.id) !== base) {
        throw new Problem('environment_in_use', `${base.spec.id} changed meanwhile; try again`);
      }
      return { environment, facts, report };
    });
  }

  /**
   * Plays an environment that is there already.
   * @param kind of a custom environment; undefined for one that is built in
   * @throws Problem `too_many_requests`
   */
  check(environment: AnyEnvironment, kind: string | undefined): Promise<CheckReport> {
    return this.#inTurn(() => checkEnvironment(environment, extentOf(kind)));
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= MOST_TRIALS) {
      throw new Problem(
        'too_many_requests',
        `${MOST_TRIALS} environments are being checked, the most at a time`,
        { retryAfterSeconds: RETRY_AFTER_SECONDS },
      );
    }
    this.#running++;
    try {
      return await work();
    } finally {
      this.#running--;
    }
  }
}

function extentOf(kind: string | undefined): CheckOptions {
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
