import type { JsonObject } from '../../../../shared/json.ts';
import { type AnyEnvironment, ENVIRONMENT_ID } from '../environment.ts';
import { resolveConfig, resolveOptions } from '../settings.ts';
import { whyOutside } from '../spaces.ts';
import { checkEpisode } from './episode-rules.ts';
import { type CheckReport, Findings, isPlainJson, shown } from './play.ts';

/** Checks the specification alone. */
function checkSpec(environment: AnyEnvironment, findings: Findings): void {
  const { spec } = environment;
  const wrong = (message: string) => findings.add('spec', message);
  findings.at('');
  if (!ENVIRONMENT_ID.test(spec.id)) wrong(`the id ${shown(spec.id)} does not read [namespace/]Name-vN`);
  for (const key of ['title', 'description'] as const) if (!spec[key]?.trim()) wrong(`${key} is empty`);
  const [least, most] = spec.rewardRange;
  if (!(least <= most)) wrong(`rewardRange [${least}, ${most}] is not a range`);
  if (spec.rewardThreshold !== undefined && !Number.isFinite(spec.rewardThreshold)) {
    wrong(`rewardThreshold is ${spec.rewardThreshold}`);
  }
  const optimum = spec.knownOptimum?.success;
  if (optimum !== undefined && !(optimum >= 0 && optimum <= 1))
    wrong(`knownOptimum.success is ${optimum}, no share`);
  if (!(spec.maxEpisodeSteps >= 1)) wrong(`maxEpisodeSteps is ${spec.maxEpisodeSteps}`);
  if (spec.history.length === 0) wrong('history is empty');
  if (!spec.observationFormats.includes('text')) wrong('observationFormats lacks text');
  if (whyOutside(spec.actionSpace, spec.exampleAction) !== undefined) {
    wrong(`exampleAction ${shown(spec.exampleAction)} is not in the action space`);
  }
  attempt('options without anything given', wrong, () => resolveOptions(environment));
  for (const [name, config] of configurations(environment)) {
    const resolved = attempt(`configuration ${name}`, wrong, () => resolveConfig(environment, config));
    if (resolved) checkDescription(environment, name, resolved, findings);
  }
}

/** The default configuration and every preset. */
function configurations(environment: AnyEnvironment): [name: string, config: JsonObject][] {
  const presets = Object.keys(environment.spec.presets ?? {});
  return [['default', {}], ...presets.map((preset): [string, JsonObject] => [preset, { preset }])];
}

function attempt<T>(what: string, wrong: (message: string) => void, run: () => T): T | undefined {
  try {
    return run();
  } catch (error) {
    wrong(`${what}: ${(error as Error).message}`);
    return undefined;
  }
}

function checkDescription(
  environment: AnyEnvironment,
  name: string,
  config: JsonObject,
  findings: Findings,
): void {
  const wrong = (message: string) => findings.add('description', message);
  findings.at(`configuration ${name}`);
  const description = attempt('describe', wrong, () => environment.describe(config));
  if (!description) return;
  if (!description.instruction?.trim()) wrong('the instruction is empty');
  if (!description.actions && !description.actionFormat)
    wrong('neither actions nor actionFormat says how to act');
  const space = environment.spec.actionSpace;
  if (space.type === 'Discrete' && description.actions && description.actions.length !== space.n) {
    wrong(`${description.actions.length} actions are named, the space has ${space.n}`);
  }
  if (!isPlainJson(description)) wrong('the description is not plain JSON');
}

export interface CheckOptions {
  /** Configurations to play, by name. Default: the default configuration and every preset. */
  readonly configs?: readonly (readonly [name: string, config: JsonObject])[];
  /** Episodes of each configuration, with seeds from 0. */
  readonly episodes?: number;
  /** Most steps of an episode. */
  readonly steps?: number;
  /** Milliseconds after which playing stops; the report says how much was played. Default: no limit. */
  readonly budgetMs?: number;
}

const DEFAULT_EPISODES = 4;
const DEFAULT_STEPS = 40;

/**
 * Plays an environment with valid and nonsensical actions and reports violations of its contract; see `RULES` in
 * `play.ts`. Never throws, no matter what the environment does.
 */
export async function checkEnvironment(
  environment: AnyEnvironment,
  {
    configs,
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
      const resolvedOptions = resolveOptions(environment);
      for (let seed = 0; seed < episodes && performance.now() < until; seed++) {
        const settings = {
          config,
          options: resolvedOptions,
          seed,
          steps,
          until,
          rivals: episodesPlayed === 0,
        };
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
    ...(findings.warnings.length > 0 && { warnings: findings.warnings }),
  };
}
