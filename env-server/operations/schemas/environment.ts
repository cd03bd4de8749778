import type { Static } from 'typebox';
import { Type } from '../../../shared/schema/type.ts';
import { AnyJson, Bag, nullable, Wrappers } from './fields.ts';

const summary = {
  env_id: Type.String(),
  aliases: Type.Optional(
    Type.Array(Type.String(), { description: 'Other ids that the environment answers under.' }),
  ),
  title: Type.String(),
  tags: Type.Array(Type.String()),
  max_episode_steps: Type.Integer(),
};

const EnvironmentSummary = Type.Object(summary, { title: 'EnvironmentSummary' });

export const EnvironmentList = Type.Object(
  {
    environments: Type.Array(EnvironmentSummary),
    next_cursor: nullable(Type.String(), 'Pass as `cursor` for the next page; null on the last.'),
  },
  { title: 'EnvironmentList' },
);

const SpaceDocument = Type.Object(
  {
    json_schema: Type.Unknown({ description: 'JSON Schema of a value.' }),
    gymnasium: Type.Unknown({
      description:
        'Type and parameters of the Gymnasium space. A null charset admits any character, a null bound is none.',
    }),
  },
  { title: 'Space' },
);

export const EnvironmentDocument = Type.Object(
  {
    ...summary,
    description: Type.String({ description: 'The rules, in Markdown.' }),
    config: Type.Record(Type.String(), AnyJson(), {
      description: 'The effective configuration this document describes.',
    }),
    wrappers: Wrappers,
    config_schema: Type.Unknown({ description: 'JSON Schema with defaults.' }),
    options_schema: Type.Unknown({ description: 'JSON Schema of reset options.' }),
    presets: Type.Record(Type.String(), Bag),
    instruction: Type.String({ description: 'Description of the task for the player.' }),
    legend: Type.Array(Type.Object({ symbol: Type.String(), meaning: Type.String() })),
    actions: Type.Optional(
      Type.Array(Type.String(), { description: 'Names of the actions in the order of their ids.' }),
    ),
    action_format: Type.Optional(
      Type.String({ description: 'How an action is written where it is free text.' }),
    ),
    example_actions: Type.Optional(
      Type.Array(AnyJson(), {
        description:
          'Actions that the reference player `random` draws from, where the space is text or JSON.',
      }),
    ),
    vocabulary: Type.Optional(
      Type.Array(Type.String(), { description: 'Words that observations and actions are made of.' }),
    ),
    observation_space: SpaceDocument,
    structured_observation_space: SpaceDocument,
    action_space: SpaceDocument,
    observation_formats: Type.Array(Type.String()),
    reward_range: Type.Array(Type.Union([Type.Number(), Type.Null()]), {
      description: 'Smallest and largest reward of a step; null where unbounded.',
      minItems: 2,
      maxItems: 2,
    }),
    reward_threshold: Type.Optional(Type.Number({ description: 'Mean return that counts as solved.' })),
    known_optimum: Type.Optional(Type.Object({ success: Type.Number(), source: Type.String() })),
    ends: Type.Record(Type.String(), Type.String(), {
      description:
        'Values of `info.ended_by` in steps that end an episode, and their meaning. A custom environment may return others, or none.',
    }),
    render_modes: Type.Array(Type.String()),
    references: Type.Array(Type.Object({ name: Type.String(), title: Type.String() })),
    capabilities: Type.Object({
      seed: Type.Boolean(),
      snapshot: Type.Boolean(),
      reseed: Type.Boolean({ description: '`clone` and `restore` take a `dynamics_seed`.' }),
      render: Type.Boolean(),
    }),
    example_action: Type.Unknown(),
    condition: Type.Optional(
      Type.Object(
        { summary: Type.String() },
        {
          additionalProperties: true,
          description: 'What this machine offers the environment, e.g. its isolation.',
        },
      ),
    ),
    history: Type.Array(Type.Object({ version: Type.Integer(), change: Type.String() })),
  },
  { title: 'Environment' },
);
export type EnvironmentDocument = Static<typeof EnvironmentDocument>;
