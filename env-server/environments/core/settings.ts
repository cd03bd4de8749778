import type { TSchema } from 'typebox';
import { type Fault, faultsOf, faultText, withFewUnknown } from '../../../shared/faults.ts';
import { isObject, type JsonObject } from '../../../shared/json.ts';
import { errorsOf, fillDefaults } from '../../../shared/schema/check.ts';
import { Type } from '../../../shared/schema/type.ts';
import { suggestion } from '../../../shared/text.ts';
import { type AnyEnvironment, type EnvironmentSpec, InvalidConfig, InvalidOptions } from './environment.ts';

/** The configuration key that names one of the environment's presets. */
const PRESET_KEY = 'preset';
/** Characters of an unknown key that an error repeats. */
const MAX_KEY_LENGTH = 100;

/**
 * The effective configuration: the schema's defaults, overridden by the preset in `given.preset`, overridden by the
 * given keys.
 * @throws InvalidConfig with a JSON pointer to the first fault
 */
export function resolveConfig(environment: AnyEnvironment, given: JsonObject = {}): JsonObject {
  const { spec } = environment;
  const { [PRESET_KEY]: presetName, ...own } = withFewUnknown(spec.configSchema, given) as JsonObject;
  let preset: JsonObject = {};
  if (presetName !== undefined) {
    const presets = spec.presets ?? {};
    if (typeof presetName !== 'string' || !Object.hasOwn(presets, presetName)) {
      const names = Object.keys(presets);
      const choices = names.length > 0 ? `its presets are ${names.join(', ')}` : 'it has no presets';
      throw new InvalidConfig(
        `/${PRESET_KEY}`,
        `${spec.id} has no preset ${JSON.stringify(presetName)}; ${choices}`,
      );
    }
    preset = presets[presetName];
  }
  const { value: config, fault } = resolveAgainst(
    spec.configSchema,
    merge(preset, own),
    spec.presets ? [PRESET_KEY] : [],
  );
  if (fault) throw new InvalidConfig(fault.pointer, `config of ${spec.id}: ${fault.message}`);
  environment.checkConfig?.(config);
  return config;
}

/**
 * Reset options with the schema's defaults.
 * @throws InvalidOptions with a JSON pointer to the first fault
 */
export function resolveOptions(environment: AnyEnvironment, given: JsonObject = {}): JsonObject {
  const { spec } = environment;
  const { value: options, fault } = resolveAgainst(spec.optionsSchema, given);
  if (fault) throw new InvalidOptions(fault.pointer, `options of ${spec.id}: ${fault.message}`);
  return options;
}

/**
 * Steps after which an episode is truncated: the configuration's `max_steps` where it has it, otherwise the spec's. A
 * time limit around the environment may end it earlier.
 */
export function stepLimit(spec: EnvironmentSpec, config: JsonObject): number {
  const own = typeof config.max_steps === 'number' ? config.max_steps : spec.maxEpisodeSteps;
  return Math.min(own, spec.timeLimit ?? own);
}

/**
 * A copy of a value with the schema's defaults, and its first fault.
 * @param besides valid keys outside the schema, for suggestions
 */
export function resolveAgainst(
  schema: TSchema,
  given: JsonObject,
  besides: readonly string[] = [],
): { value: JsonObject; fault?: Fault } {
  const value = fillDefaults(schema, structuredClone(withFewUnknown(schema, given))) as JsonObject;
  return { value, fault: firstFault(schema, value, besides) };
}

function merge(base: JsonObject, over: JsonObject): JsonObject {
  const merged = new Map(Object.entries(base));
  for (const [key, value] of Object.entries(over)) {
    const under = merged.get(key);
    merged.set(key, under !== undefined && isObject(under) && isObject(value) ? merge(under, value) : value);
  }
  return Object.fromEntries(merged);
}

function firstFault(schema: TSchema, value: JsonObject, besides: readonly string[]): Fault | undefined {
  const [fault] = faultsOf(schema, value, errorsOf(schema, value));
  if (!fault) return undefined;
  const { pointer, key } = fault;
  const { properties } = schema as { properties?: object };
  if (!key || key.isKnown || !properties || pointer.lastIndexOf('/') > 0) {
    return { pointer, message: faultText(fault, 'value') };
  }
  const known = [...Object.keys(properties), ...besides];
  const name = key.name.slice(0, MAX_KEY_LENGTH);
  return {
    pointer,
    message: `unknown key ${name}${suggestion(name, known)}; it knows ${known.join(', ') || 'none'}`,
  };
}

type Range = readonly [least: number, most?: number];

const bounded = (fallback: number, [minimum, maximum]: Range, description: string) => ({
  default: fallback,
  minimum,
  ...(maximum !== undefined && { maximum }),
  description,
});

/** A whole number of a configuration or of options, with its default. */
export const integerSetting = (fallback: number, range: Range, description: string) =>
  Type.Integer(bounded(fallback, range, description));

export const numberSetting = (fallback: number, range: Range, description: string) =>
  Type.Number(bounded(fallback, range, description));

/** One of several texts or numbers. */
export const choiceSetting = <const T extends string | number>(
  values: readonly T[],
  fallback: NoInfer<T>,
  description: string,
) =>
  Type.Unsafe<T>(
    Type.Union(
      values.map(value => Type.Literal(value)),
      { default: fallback, description },
    ),
  );
