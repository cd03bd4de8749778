import type { JsonObject } from '../../../../shared/json.ts';
import type { AnyEnvironment } from '../environment.ts';
import { resolveConfig, resolveOptions } from '../settings.ts';
import { checkEpisode } from './episode-rules.ts';
import { type CheckReport, Findings } from './report.ts';
import { checkSpec, configurations } from './spec-rules.ts';

export interface CheckOptions {
  /** Configurations to play, by name. Default: the default configuration and every preset. */
  readonly configs?: readonly (readonly [name: string, config: JsonObject])[];
  /** Reset options of every episode. */
  readonly options?: JsonObject;
  /** Episodes of each configuration, with seeds from 0. */
  readonly episodes?: number;
  /** Most steps of an episode. */
  readonly steps?: number;
  /** Milliseconds after which nothing more is played; the report says how much was. Default: no limit. */
  readonly budgetMs?: number;
}

const DEFAULT_EPISODES = 4;
const DEFAULT_STEPS = 40;

/**
 * Plays an environment with sensible and senseless actions and reports what it owes its callers and does not
 * keep; see `RULES` in `report.ts`. Never throws for what the environment does.
 */
export async function checkEnvironment(
  environment: AnyEnvironment,
  {
    configs,
    options = {},
    episodes = DEFAULT_EPISODES,
    steps = DEFAULT_STEPS,
    budgetMs = Number.POSITIVE_INFINITY,
  }: CheckOptions = {},
): Promise<CheckReport> {
  const findings = new Findings();
  const until = performance.now() + budgetMs;
  checkSpec(environment, findings);
  const played = configs ?? configurations(environment);
  let configurationsPlayed = 0;
  let episodesPlayed = 0;
  let stepsPlayed = 0;
  for (const [name, given] of played) {
    const where = `configuration ${name}`;
    findings.at(where);
    try {
      const config = resolveConfig(environment, given);
      const resolvedOptions = resolveOptions(environment, options);
      for (let seed = 0; seed < episodes && performance.now() < until; seed++) {
        const settings = { config, options: resolvedOptions, seed, steps, until };
        stepsPlayed += await checkEpisode(environment, settings, findings, `${where}, seed ${seed}`);
        episodesPlayed++;
        if (seed === 0) configurationsPlayed++;
      }
    } catch (error) {
      findings.add('no_exceptions', error instanceof Error ? error.message : String(error));
    }
  }
  return {
    env_id: environment.spec.id,
    passed: findings.list.length === 0,
    configurations: configurationsPlayed,
    episodes: episodesPlayed,
    steps: stepsPlayed,
    findings: findings.list,
  };
}
