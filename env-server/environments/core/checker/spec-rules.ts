import type { JsonObject } from '../../../../shared/json.ts';
import type { AnyEnvironment } from '../environment.ts';
import { ENVIRONMENT_ID } from '../environment.ts';
import { whyOutside } from '../membership.ts';
import { resolveConfig, resolveOptions } from '../settings.ts';
import type { Findings } from './report.ts';
import { isPlainJson, shown } from './values.ts';

/** Checks what can be read off the specification. */
export function checkSpec(environment: AnyEnvironment, findings: Findings): void {
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
export function configurations(environment: AnyEnvironment): [name: string, config: JsonObject][] {
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
