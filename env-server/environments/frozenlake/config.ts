import type { Static } from 'typebox';
import type { JsonObject } from '../../../shared/json.ts';
import { Type } from '../../../shared/schema/type.ts';
import { layoutSchema, textFormSchema } from '../core/drawing/grid.ts';
import { splitSchema } from '../core/splits.ts';

const symbol = (fallback: string) => Type.String({ default: fallback, minLength: 1, maxLength: 16 });

const symbolsSchema = Type.Object(
  {
    player: symbol('P'),
    frozen: symbol('_'),
    hole: symbol('O'),
    goal: symbol('G'),
    player_in_hole: symbol('X'),
    player_on_goal: symbol('√'),
  },
  { default: {}, additionalProperties: false, description: 'How each kind of cell is written.' },
);

export const configSchema = Type.Object(
  {
    size: Type.Integer({
      default: 4,
      minimum: 2,
      maximum: 32,
      description: 'Rows and columns of a random lake.',
    }),
    p_frozen: Type.Number({
      default: 0.9,
      exclusiveMinimum: 0,
      maximum: 1,
      description: 'Chance that a cell of a random lake is frozen rather than a hole.',
    }),
    success_rate: Type.Number({
      default: 0.8,
      minimum: 0,
      maximum: 1,
      description:
        'Chance to move as chosen; the rest is split evenly over the two perpendicular directions. 1 never slips, 1/3 is the classic lake.',
    }),
    map: Type.Union([Type.Literal('random'), Type.Literal('4x4'), Type.Literal('8x8')], {
      default: 'random',
      description: 'A new lake every reset, or one of the two classic ones.',
    }),
    split: splitSchema,
    max_steps: Type.Integer({
      default: 100,
      minimum: 1,
      maximum: 10_000,
      description: 'Steps before truncation.',
    }),
    observation_format: textFormSchema,
    symbols: symbolsSchema,
  },
  { additionalProperties: false },
);

const cell = (description: string) =>
  Type.Array(Type.Integer({ minimum: 0 }), { minItems: 2, maxItems: 2, description });

export const optionsSchema = Type.Object(
  {
    layout: layoutSchema(
      'The lake as rows of cells: the symbols of the observation, or S start, F frozen, H hole, G goal.',
    ),
    start: Type.Optional(cell('Start as [row, col].')),
    goal: Type.Optional(cell('Goal as [row, col].')),
    player: Type.Optional(cell('Where the player stands, if not on the start, as [row, col].')),
  },
  { additionalProperties: false },
);

export type Symbols = Static<typeof symbolsSchema>;
export type FrozenLakeConfig = Static<typeof configSchema>;
export type FrozenLakeOptions = Static<typeof optionsSchema>;

export const PRESETS: { readonly [name: string]: JsonObject } = {
  simple: { size: 4, success_rate: 0.8 },
  deterministic: { success_rate: 1 },
  coord: { observation_format: 'coord' },
  grid_coord: { observation_format: 'grid_coord' },
  visual: { observation_format: 'image' },
  larger: { size: 8, p_frozen: 0.85 },
  classic_4x4: { map: '4x4', success_rate: 1 / 3 },
  classic_8x8: { map: '8x8', success_rate: 1 / 3, max_steps: 200 },
};

/** The two lakes of Gymnasium. */
export const CLASSIC_MAPS: { readonly [name: string]: readonly string[] } = {
  '4x4': ['SFFF', 'FHFH', 'FFFH', 'HFFG'],
  '8x8': ['SFFFFFFF', 'FFFFFFFF', 'FFFHFFFF', 'FFFFFHFF', 'FFFHFFFF', 'FHHFFFHF', 'FHFFHFHF', 'FFFHFFFG'],
};
