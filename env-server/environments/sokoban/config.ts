import type { Static } from 'typebox';
import type { JsonObject } from '../../../shared/json.ts';
import { Type } from '../../../shared/schema/type.ts';
import { layoutSchema, textFormSchema } from '../core/drawing/grid.ts';
import { splitSchema } from '../core/splits.ts';

const symbol = (fallback: string) => Type.String({ default: fallback, minLength: 1, maxLength: 16 });

const symbolsSchema = Type.Object(
  {
    wall: symbol('#'),
    floor: symbol('_'),
    target: symbol('O'),
    box_on_target: symbol('√'),
    box: symbol('X'),
    player: symbol('P'),
    player_on_target: symbol('S'),
  },
  { default: {}, additionalProperties: false, description: 'How each kind of cell is written.' },
);

const MIN_SIDE = 4;
const MAX_SIDE = 20;

export const configSchema = Type.Object(
  {
    dim_room: Type.Array(Type.Integer({ minimum: MIN_SIDE, maximum: MAX_SIDE }), {
      default: [6, 6],
      minItems: 2,
      maxItems: 2,
      description: 'Rows and columns, the walls around the room included.',
    }),
    num_boxes: Type.Integer({ default: 3, minimum: 1, maximum: 8, description: 'Boxes, and targets.' }),
    max_steps: Type.Integer({
      default: 100,
      minimum: 1,
      maximum: 10_000,
      description: 'Steps before truncation.',
    }),
    search_depth: Type.Integer({
      default: 300,
      minimum: 2,
      maximum: 1000,
      description: 'Depth limit of the search that pulls the boxes away from their targets.',
    }),
    min_solution: Type.Integer({
      default: 0,
      minimum: 0,
      maximum: 200,
      description: 'Rooms with a shorter shortest solution are drawn again.',
    }),
    max_solution: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 1000,
        description: 'Rooms with a longer shortest solution are drawn again.',
      }),
    ),
    split: splitSchema,
    observation_format: textFormSchema,
    symbols: symbolsSchema,
  },
  { additionalProperties: false },
);

export const optionsSchema = Type.Object(
  {
    layout: layoutSchema(
      'The room as rows of cells: the symbols of the observation, or the usual # - . * $ @ + of level files.',
    ),
  },
  { additionalProperties: false },
);

export type Symbols = Static<typeof symbolsSchema>;
export type SokobanConfig = Static<typeof configSchema>;
export type SokobanOptions = Static<typeof optionsSchema>;

export const PRESETS: { readonly [name: string]: JsonObject } = {
  simple: { num_boxes: 1 },
  larger: { dim_room: [8, 8], num_boxes: 2, search_depth: 10 },
  coord: { num_boxes: 1, observation_format: 'coord' },
  grid_coord: { num_boxes: 1, observation_format: 'grid_coord' },
  visual: { num_boxes: 1, observation_format: 'image' },
  letters: {
    num_boxes: 1,
    symbols: {
      wall: 'W',
      floor: '.',
      target: 'G',
      box_on_target: 'C',
      box: 'B',
      player: 'A',
      player_on_target: '@',
    },
  },
};
