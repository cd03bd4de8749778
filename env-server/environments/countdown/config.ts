import type { Static } from 'typebox';
import type { JsonObject } from '../../../shared/json.ts';
import { Type } from '../../../shared/schema/type.ts';
import { dataFile } from '../core/datasets/question.ts';
import { splitSchema } from '../core/splits.ts';

const count = (fallback: number, description: string) =>
  Type.Integer({ default: fallback, minimum: 2, maximum: 6, description });

export const configSchema = Type.Object(
  {
    min_nums: count(3, 'Fewest numbers of a generated puzzle.'),
    max_nums: count(4, 'Most numbers of a generated puzzle.'),
    max_number: Type.Integer({ default: 99, minimum: 1, maximum: 1000, description: 'Greatest number.' }),
    max_target: Type.Integer({
      default: 100,
      minimum: 1,
      maximum: 1_000_000,
      description: 'Greatest target.',
    }),
    operators: Type.Union([Type.Literal('all'), Type.Literal('plus_minus')], {
      default: 'all',
      description:
        'Operators a puzzle needs at most. With plus_minus, rows of a data file that + and − cannot solve are left out, as RAGEN does.',
    }),
    split: splitSchema,
    data: dataFile(
      'File of puzzles instead of generated ones: .jsonl, .json or .parquet with the fields nums and target.',
    ),
  },
  { additionalProperties: false },
);

export const optionsSchema = Type.Object(
  {
    nums: Type.Optional(
      Type.Array(Type.Integer({ minimum: 0, maximum: 1_000_000 }), {
        minItems: 1,
        maxItems: 6,
        description: 'The numbers; goes with target.',
      }),
    ),
    target: Type.Optional(Type.Number({ description: 'The target; goes with nums.' })),
    index: Type.Optional(Type.Integer({ minimum: 0, description: 'Row of the data file, from 0.' })),
  },
  { additionalProperties: false },
);

export type CountdownConfig = Static<typeof configSchema>;
export type CountdownOptions = Static<typeof optionsSchema>;

export const PRESETS: { readonly [name: string]: JsonObject } = {
  three: { min_nums: 3, max_nums: 3 },
  four: { min_nums: 4, max_nums: 4 },
  plus_minus: { operators: 'plus_minus' },
};
