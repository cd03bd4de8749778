import type { Static } from 'typebox';
import type { Json } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { END_NAME } from '../../../shared/step-info.ts';
import { drawnPolicy } from '../../environments/core/actions.ts';
import type {
  Description,
  Ends,
  EnvironmentSpec,
  ReferencePolicy,
} from '../../environments/core/environment.ts';
import { integerSetting } from '../../environments/core/settings.ts';
import { DefinitionFaults } from './fault.ts';

const VERSION = /-v(\d+)$/;

interface About {
  readonly title: string;
  readonly description?: string;
  readonly tags?: readonly string[];
  readonly ends?: Ends;
}

/** Parts that every kind of custom environment has. */
export function aboutSpec(
  envId: string,
  kind: string,
  { title, description, tags = [], ends }: About,
  summary: string,
): Pick<EnvironmentSpec, 'id' | 'title' | 'description' | 'tags' | 'history' | 'ends'> {
  const version = Number(VERSION.exec(envId)?.[1] ?? 0);
  return {
    id: envId,
    title,
    description: description ?? summary,
    tags: [...new Set([kind, ...tags])],
    history: [{ version, change: 'Registered by its owner.' }],
    ...(ends && { ends }),
  };
}

/** Common parts of several kinds of definitions. */

/** Longest id and name, in characters. */
export const NAME_LENGTH = 128;
export const MAX_TEXT_LENGTH = 20_000;
/** Most steps of an episode. */
export const MAX_STEPS = 100_000;
/** Most actions of a discrete space. */
export const MAX_ACTIONS = 10_000;
/** Default for the most steps of an episode. */
export const DEFAULT_MAX_STEPS = 100;

/** `max_steps` of a configuration: sessions may ask for fewer than the definition allows. */
export const stepsSetting = (maxSteps: number) =>
  integerSetting(maxSteps, [1, maxSteps], 'Steps before truncation.');

/** Most keys of a bag. */
const MAX_KEYS = 1000;
export const bag = (description: string) =>
  Type.Record(Type.String(), Type.Unsafe<Json>({}), { maxProperties: MAX_KEYS, description });

/** Descriptive fields of every kind of environment. */
export const about = {
  title: Type.String({ minLength: 1, maxLength: 200 }),
  description: Type.Optional(
    Type.String({ maxLength: MAX_TEXT_LENGTH, description: 'The rules for readers, in Markdown.' }),
  ),
  tags: Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: NAME_LENGTH }), { maxItems: 16 })),
};

export const EndName = (description: string) => Type.String({ pattern: END_NAME, description });

/** Fields of environments that define their task themselves. */
export const task = {
  ...about,
  instruction: Type.String({
    minLength: 1,
    maxLength: MAX_TEXT_LENGTH,
    description: 'Instruction for the player: the task and how it is won.',
  }),
  max_episode_steps: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: MAX_STEPS,
      default: DEFAULT_MAX_STEPS,
      description:
        'Steps after which an episode is truncated; sessions may ask for fewer with `config.max_steps`.',
    }),
  ),
  ends: Type.Optional(
    Type.Record(Type.String({ pattern: END_NAME }), Type.String({ minLength: 1, maxLength: 200 }), {
      maxProperties: 100,
      additionalProperties: false,
      description:
        'Values of `info.ended_by` in steps that end an episode, and their meaning, e.g. `{"hole": "Fell into a hole"}`.',
    }),
  ),
};

/** Bounds of a reward. */
export const REWARD = { minimum: -1e12, maximum: 1e12 };

const ActionSpace = Type.Union(
  [
    closed({
      type: Type.Literal('Discrete'),
      names: Type.Array(Type.String({ minLength: 1, maxLength: NAME_LENGTH }), {
        minItems: 1,
        maxItems: MAX_ACTIONS,
        description: 'Names of the actions; their ids count from `start`.',
      }),
      start: Type.Optional(Type.Integer({ default: 0 })),
    }),
    closed({
      type: Type.Literal('Text'),
      max_length: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 2000 })),
      format: Type.Optional(
        Type.String({ maxLength: 2000, description: 'How an action is written, e.g. `guess[number]`.' }),
      ),
    }),
    closed({
      type: Type.Literal('Json'),
      schema: bag(
        'JSON Schema of an action; see docs/how-to/custom-environments.md for the keywords that it may use.',
      ),
      format: Type.Optional(Type.String({ maxLength: 2000, description: 'How an action is written.' })),
    }),
  ],
  { title: 'DefinedActionSpace' },
);
export type DefinedActionSpace = Static<typeof ActionSpace>;

/** Fields of environments with rules in code. */
export const behavior = {
  action_space: ActionSpace,
  example_action: Type.Unsafe<Json>({ description: 'An action of the space.' }),
  observation_max_length: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 1_000_000, default: 10_000, description: 'Longest observation.' }),
  ),
  reward_range: Type.Optional(
    Type.Array(Type.Number(REWARD), {
      minItems: 2,
      maxItems: 2,
      description: 'Smallest and largest reward of a step; unbounded when absent.',
    }),
  ),
  config_schema: Type.Optional(
    bag(
      'JSON Schema of the configuration: an object with a default for each property. Without it only `max_steps` can be configured.',
    ),
  ),
  options_schema: Type.Optional(bag('JSON Schema of reset options, which pin the start of an episode.')),
};

export const Wrappers = Type.Array(
  closed({
    name: Type.String({ minLength: 1, maxLength: NAME_LENGTH }),
    options: Type.Optional(bag('By the wrapper’s own schema.')),
  }),
  { maxItems: 16, description: 'Applied in this order: the first is the innermost.' },
);

/** Most bytes of JSON of a definition's vocabulary or example actions. */
const MAX_LIST_BYTES = 64 * 1024;
const MAX_WORDS = 10_000;

/** Words for small policies and sample actions for the random player. */
export const wordLists = {
  vocabulary: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: NAME_LENGTH }), {
      minItems: 1,
      maxItems: MAX_WORDS,
      description:
        'Words that all observations and actions are made of, for word-level tokenizers; leave it out for free text. At most 64 KiB as JSON.',
    }),
  ),
  actions: Type.Optional(
    Type.Array(Type.Unsafe<Json>({}), {
      minItems: 1,
      maxItems: MAX_ACTIONS,
      description:
        'Example actions of a space of text or JSON: the reference player `random` and warm starts draw from them. Players may take others. At most 64 KiB as JSON.',
    }),
  ),
};

interface WordLists {
  readonly vocabulary?: readonly string[];
  readonly actions?: readonly Json[];
}

/** The lists in an environment's form. */
interface CompiledLists {
  readonly description: Pick<Description, 'vocabulary' | 'exampleActions'>;
  readonly references?: { readonly random: ReferencePolicy<unknown> };
}

/**
 * @param isAction true for a member of the action space
 * @param faults receives the faults, with JSON pointers
 */
export function compileLists(
  { vocabulary, actions }: WordLists,
  isAction: (action: Json) => boolean,
  faults: DefinitionFaults,
): CompiledLists {
  for (const [name, list] of Object.entries({ vocabulary, actions })) {
    const bytes = list ? Buffer.byteLength(JSON.stringify(list)) : 0;
    if (bytes > MAX_LIST_BYTES) {
      faults.add(`/${name}`, `has ${bytes} bytes as JSON; at most ${MAX_LIST_BYTES} are taken`);
    }
  }
  actions?.forEach((action, i) => {
    if (!isAction(action)) faults.add(`/actions/${i}`, 'is not an action of the action space');
  });
  return {
    description: { ...(vocabulary && { vocabulary }), ...(actions && { exampleActions: actions }) },
    ...(actions && { references: { random: drawnPolicy(actions) } }),
  };
}

/**
 * {@link compileLists} for a definition that gets no other check.
 * @throws Problem `invalid_request` with JSON pointers
 */
export function listsOf(definition: WordLists, isAction: (action: Json) => boolean): CompiledLists {
  const faults = new DefinitionFaults();
  const lists = compileLists(definition, isAction, faults);
  faults.raise();
  return lists;
}
