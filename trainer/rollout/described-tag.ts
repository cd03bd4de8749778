import { isObject, type Json, type JsonObject } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';
import type { ActionNames } from '../../shared/response.ts';
import { isEndName } from '../../shared/step-info.ts';
import type { Schemas } from '../client/operations.ts';
import { ServerUnavailable } from '../client/retry.ts';
import type { ServerPool } from '../client/servers.ts';
import { DEEPEST_SCHEMA, referred } from '../generation/json/json-schema.ts';
import { drawText, parsePattern, shortened, withLengths } from '../generation/json/pattern.ts';
import type { PromptTask, TaskDescription } from '../prompts/prompt.ts';
import type { Tag } from './tag.ts';

/** A tag with its environment's description under the tag's configuration. */
export interface DescribedTag {
  readonly tag: Tag;
  readonly description: TaskDescription;
  /** The actions of a discrete space; absent for free text. */
  readonly actionNames?: ActionNames;
  /** Actions are JSON, which answers write as text. */
  readonly jsonActions: boolean;
  /** The valid actions of each state are asked for, and responses hold one of them. */
  readonly constrained?: boolean;
  /** False for an environment without randomness, which rejects a seed. */
  readonly seedable: boolean;
  /** True if chance after the start has a seed that differs between the members of a group. */
  readonly hasDynamicsSeed: boolean;
  /** States can be copied. */
  readonly copyable: boolean;
  /** Copies can have new random streams, and states have names. */
  readonly reseedable: boolean;
  /** Names of the reference policies it has. */
  readonly references: readonly string[];
  /** Meaning of each `info.ended_by`. */
  readonly ends: { readonly [name: string]: string };
}

/**
 * Requests the description of each tag's environment, from every server that plays it.
 * @throws ServerProblem for an unknown environment or a wrong configuration; ServerUnavailable when none answers
 */
export function describeTags(servers: ServerPool, tags: readonly Tag[]): Promise<DescribedTag[]> {
  return Promise.all(tags.map(async tag => describedTag(tag, await described(servers, tag))));
}

async function described(servers: ServerPool, tag: Tag): Promise<Schemas['Environment']> {
  let server = servers.pick({ tag: tag.name });
  for (;;) {
    try {
      return await server.describe(tag.environmentId, tag.config);
    } catch (error) {
      if (!(error instanceof ServerUnavailable) || servers.servers.length === 1) throw error;
      if (!(await servers.anyThere(tag.name))) throw error;
    } finally {
      servers.done(server, { tag: tag.name });
    }
    server = servers.pick({ tag: tag.name, except: server });
  }
}

/** A tag with the server's document of its environment. */
function describedTag(tag: Tag, document: Schemas['Environment']): DescribedTag {
  const space = document.action_space.gymnasium as { readonly type: string; readonly start?: number };
  const { actions, example_action: example } = document;
  const examples = tag.actions ?? document.example_actions;
  if (tag.actions && space.type === 'Discrete') {
    throw new Error(
      `tags.${tag.name}.actions: ${document.env_id} has a discrete space, which names its actions itself`,
    );
  }
  const jsonActions = hasJsonActions(document);
  const drawn = examples ? undefined : drawnActionsOf(document);
  return {
    tag,
    description: {
      environmentId: document.env_id,
      instruction: document.instruction,
      legend: document.legend,
      actions,
      ...(examples && { exampleActions: examples.map(action => writtenAction(action as Json, jsonActions)) }),
      ...(jsonActions ? { jsonActions } : {}),
      ...(jsonActions && !examples ? { actionSchema: schemaOf(document, tag) } : {}),
      ...(drawn && { drawnActions: drawn.map(action => writtenAction(action, true)) }),
      ...(actions || examples ? {} : { exampleAction: writtenAction(example as Json, jsonActions) }),
      actionFormat: document.action_format,
      vocabulary: document.vocabulary,
    },
    actionNames:
      space.type === 'Discrete' && actions ? { names: actions, start: space.start ?? 0 } : undefined,
    jsonActions,
    seedable: document.capabilities.seed,
    hasDynamicsSeed: document.capabilities.seed && document.capabilities.snapshot,
    copyable: document.capabilities.snapshot,
    // Servers of earlier versions do not know the field.
    reseedable: document.capabilities.reseed === true,
    references: document.references.map(reference => reference.name),
    ends: endsIn(document.ends),
  };
}

const hasJsonActions = ({ action_space }: Schemas['Environment']): boolean =>
  !['Discrete', 'Text'].includes((action_space.gymnasium as { readonly type: string }).type);

const schemaOf = ({ action_space }: Schemas['Environment'], { numberSpan }: Tag): JsonObject => {
  const schema = action_space.json_schema as JsonObject;
  return numberSpan === undefined ? schema : (spanned(schema, numberSpan) as JsonObject);
};

/** JSON actions drawn from their schema, where the environment neither lists any nor has a random player. */
export function drawnActionsOf(document: Schemas['Environment']): readonly Json[] | undefined {
  const { example_actions, references, action_space } = document;
  if (!hasJsonActions(document) || example_actions || references.some(({ name }) => name === 'random')) {
    return undefined;
  }
  return drawnActions(action_space.json_schema as JsonObject);
}

/** Most ends of an environment that a run keeps, and most characters of a meaning. */
const MAX_ENDS = 64;
const MAX_MEANING_LENGTH = 200;

/** Well-formed ends of a server's document; servers of earlier versions name none. */
function endsIn(ends: Schemas['Environment']['ends'] | undefined): DescribedTag['ends'] {
  const known = Object.entries(ends ?? {}).filter(
    ([name, meaning]) => isEndName(name) && typeof meaning === 'string',
  );
  return Object.fromEntries(
    known.slice(0, MAX_ENDS).map(([name, meaning]) => [name, meaning.slice(0, MAX_MEANING_LENGTH)]),
  );
}

/** True if random play is possible: the environment names or describes actions, its states list them, or it has a random reference policy. */
export function hasRandomPlayer({
  actionNames,
  description,
  references,
  constrained = false,
}: DescribedTag): boolean {
  const isNamed = actionNames !== undefined || playableActions(description) !== undefined;
  return isNamed || constrained || references.includes('random');
}

/** Actions from which random play draws. */
export const playableActions = ({
  exampleActions,
  drawnActions,
}: TaskDescription): readonly string[] | undefined => exampleActions ?? drawnActions;

/** An action as text in an answer. */
export function writtenAction(action: Json, isJson: boolean): string {
  return typeof action === 'string' && !isJson ? action : JSON.stringify(action);
}

/** Form of responses, the same for all tags of a run. */
export interface ResponseSettings {
  /** Longest response in tokens. */
  readonly responseLength: number;
  readonly think: boolean;
  /** The `compact` prompt says how many turns are left. */
  readonly turnsLeft?: boolean;
}

/** Input of the prompt of a tag. */
export function promptTask({ tag, description }: DescribedTag, response: ResponseSettings): PromptTask {
  return {
    description,
    maxTurns: tag.maxTurns,
    maxActionsPerTurn: tag.maxActionsPerTurn,
    maxActionsPerTrajectory: tag.maxActionsPerTrajectory,
    ...response,
  };
}

/** Different actions that are drawn, and tries. */
const ACTIONS = 64;
const TRIES = 512;
/** Spans of numbers of which one is drawn, most items and most characters where the schema sets no bound. */
const SPANS = [9, 99, 999];
const MAX_ITEMS = 3;
const MAX_CHARACTERS = 4;
/** A unit of fractions. */
const FRACTION = 100;
/** Most values and characters of one action, all that it holds included. */
const LARGEST = 10_000;

/** The randomness of one action, the values and characters that are left to it, and the schema that `$ref`s point into. */
interface Draw {
  readonly rng: Random;
  readonly root: JsonObject;
  left: number;
}

/**
 * Different actions that fit the schema of an action space, its properties in order: a random player where an environment
 * lists no JSON actions. Free texts are digits, as nothing says what they should be.
 * @returns undefined for a schema that does not say what an action looks like, or asks for a larger one than is drawn
 */
export function drawnActions(schema: JsonObject): readonly Json[] | undefined {
  const rng = Random.fromSeed(0);
  const drawn = new Map<string, Json>();
  try {
    for (let i = 0; i < TRIES && drawn.size < ACTIONS; i++) {
      const action = valueFor(schema, { rng, root: schema, left: LARGEST }, 0);
      if (action === undefined) return undefined;
      drawn.set(JSON.stringify(action), action);
    }
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
  return [...drawn.values()];
}

/**
 * A value of a schema; undefined where it does not say what one looks like, or too little is left.
 * @throws RangeError for a pattern or `$ref` that cannot be followed
 */
function valueFor(schema: Json | undefined, draw: Draw, depth: number): Json | undefined {
  const { rng } = draw;
  if (--draw.left < 0 || depth > DEEPEST_SCHEMA) return undefined;
  const inner = (part: Json | undefined) => valueFor(part, draw, depth + 1);
  if (!isObject(schema)) return undefined;
  const { type, properties, items, prefixItems, pattern, ...rules } = schema;
  if (rules.$ref !== undefined) return inner(referred(rules.$ref, draw.root));
  if (rules.const !== undefined) return rules.const;
  if (Array.isArray(rules.enum)) return rng.choice(rules.enum as readonly Json[]);
  const alternatives = rules.anyOf ?? rules.oneOf;
  if (Array.isArray(alternatives)) return inner(rng.choice(alternatives as readonly Json[]));
  switch (Array.isArray(type) ? rng.choice(type as readonly Json[]) : type) {
    case 'object': {
      if (properties === undefined) return undefined;
      const required = new Set(rules.required as readonly string[] | undefined);
      const named = Object.entries(properties as JsonObject).filter(
        ([name]) => required.has(name) || rng.chance(0.5),
      );
      const entries = named.map(([name, one]) => [name, inner(one)] as const);
      return entries.some(([, value]) => value === undefined)
        ? undefined
        : (Object.fromEntries(entries) as Json);
    }
    case 'array': {
      const tuple = Array.isArray(prefixItems) ? prefixItems : undefined;
      const length = tuple?.length ?? sized(rules.minItems ?? 0, rules.maxItems, MAX_ITEMS, rng);
      if (length > draw.left) return undefined;
      const values = Array.from({ length }, (_, i) => inner(tuple ? tuple[i] : items));
      return values.some(value => value === undefined) ? undefined : (values as Json[]);
    }
    case 'string': {
      if (pattern !== undefined) return matching(String(pattern), rules, draw);
      const length = sized(rules.minLength ?? 1, rules.maxLength, MAX_CHARACTERS, rng);
      draw.left -= length;
      if (draw.left < 0) return undefined;
      return Array.from({ length }, () => rng.integer(10)).join('');
    }
    case 'integer':
      return bounded(rules, 1, rng);
    case 'number':
      return bounded(rules, FRACTION, rng);
    case 'boolean':
      return rng.chance(0.5);
    case 'null':
      return null;
    default:
      return undefined;
  }
}

/** A text of a pattern within the lengths of the schema; undefined where too little is left. */
function matching(pattern: string, { minLength = 0, maxLength = LARGEST }: JsonObject, draw: Draw) {
  const whole = parsePattern(pattern);
  const [least, most] = [Number(minLength), Math.min(Number(maxLength), draw.left)];
  // One character that repeats is narrowed to the lengths instead.
  const isOne = whole.type === 'repeat' && whole.part.type === 'characters';
  const narrowed = withLengths(isOne ? whole : shortened(whole), least, most);
  const text = drawText(narrowed, draw.rng);
  draw.left -= text.length;
  return draw.left < 0 ? undefined : text;
}

/** A multiple of 1/`unit` between the bounds of a schema. */
function bounded(
  { minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below }: JsonObject,
  unit: number,
  rng: Random,
): number {
  const least = minimum ?? (above === undefined ? undefined : Number(above) + 1 / unit);
  const most = maximum ?? (below === undefined ? undefined : Number(below) - 1 / unit);
  const span = rng.choice(SPANS);
  const from = Number(least ?? (most === undefined ? 0 : Number(most) - span));
  const to = Number(most ?? from + span);
  return within(Math.ceil(from * unit), Math.floor(to * unit), rng) / unit;
}

/** Largest of the numbers that are drawn where a schema sets no bound, counted from their other bound or 0. */
export const DRAWN_SPAN = SPANS.at(-1)!;

/** A schema in which numbers without a bound have one, so that a policy that tries numbers does not name huge ones. */
export function spanned(schema: Json, span: number, depth = 0): Json {
  if (typeof schema !== 'object' || schema === null || depth > DEEPEST_SCHEMA) return schema;
  const inner = (part: Json) => spanned(part, span, depth + 1);
  if (Array.isArray(schema)) return schema.map(inner);
  const {
    minimum,
    maximum,
    exclusiveMinimum: above,
    exclusiveMaximum: below,
    ...rules
  } = schema as JsonObject;
  const parts = Object.entries(schema as JsonObject).map(([name, value]) => {
    if (name === 'properties' || name === '$defs') {
      return [
        name,
        Object.fromEntries(Object.entries(value as JsonObject).map(([key, one]) => [key, inner(one)])),
      ];
    }
    return [name, PARTS.has(name) ? inner(value) : value];
  });
  const types = [rules.type].flat();
  if (!types.includes('integer') && !types.includes('number')) return Object.fromEntries(parts);
  const least = minimum ?? above;
  const most = maximum ?? below;
  return {
    ...Object.fromEntries(parts),
    ...(least === undefined
      ? { minimum: most === undefined ? 0 : Number(most) - span - Number(below !== undefined) }
      : {}),
    ...(most === undefined ? { maximum: Number(least ?? 0) + span + Number(above !== undefined) } : {}),
  };
}

/** Keywords with schemas as values. */
const PARTS = new Set(['items', 'prefixItems', 'anyOf', 'oneOf']);

/** True if numbers of the schema lack a bound. */
export const hasUnboundedNumbers = (schema: JsonObject): boolean =>
  JSON.stringify(spanned(schema, 1)) !== JSON.stringify(schema);

/** A size from the least one to a usual one, as far as the bounds allow. */
const sized = (least: Json, most: Json | undefined, usual: number, rng: Random): number =>
  within(Number(least), Math.min(Number(most ?? usual), Math.max(usual, Number(least))), rng);

/** A whole number between two. */
const within = (least: number, most: number, rng: Random): number =>
  least + rng.integer(Math.max(1, Math.min(most - least + 1, 2 ** 31)));
