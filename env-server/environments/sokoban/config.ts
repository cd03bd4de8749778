import type { Static } from 'typebox';
import type { JsonObject } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { layoutSchema, textFormSchema } from '../core/drawing/grid.ts';
import { integerSetting } from '../core/setting-fields.ts';
import { splitSchema } from '../core/splits.ts';

const symbol = (fallback: string) => Type.String({ default: fallback, minLength: 1, maxLength: 16 });

const symbolsSchema = closed(
  {
    wall: symbol('#'),
    floor: symbol('_'),
    target: symbol('O'),
    box_on_target: symbol('√'),
    box: symbol('X'),
    player: symbol('P'),
    player_on_target: symbol('S'),
  },
  { default: {}, description: 'How each kind of cell is written.' },
);

const MIN_SIDE = 4;
const MAX_SIDE = 20;

export const configSchema = closed({
  dim_room: Type.Array(Type.Integer({ minimum: MIN_SIDE, maximum: MAX_SIDE }), {
    default: [6, 6],
    minItems: 2,
    maxItems: 2,
    description: 'Rows and columns, the walls around the room included.',
  }),
  num_boxes: integerSetting(3, [1, 8], 'Boxes, and targets.'),
  max_steps: integerSetting(100, [1, 10_000], 'Steps before truncation.'),
  search_depth: integerSetting(
    300,
    [2, 1000],
    'Depth limit of the search that pulls the boxes away from their targets.',
  ),
  min_solution: integerSetting(0, [0, 200], 'Rooms with a shorter shortest solution are drawn again.'),
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
});

export const optionsSchema = closed({
  layout: layoutSchema(
    'The room as rows of cells: the symbols of the observation, or the usual # - . * $ @ + of level files.',
  ),
});

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
