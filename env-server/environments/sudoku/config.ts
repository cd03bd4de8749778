import type { Static } from 'typebox';
import { closed, Type } from '../../../shared/schema/type.ts';
import { choiceSetting } from '../core/setting-fields.ts';
import { splitSchema } from '../core/splits.ts';
import { SIZES } from './board.ts';

/** Share of emptied cells, rounded down. */
export const BLANK_SHARES = { easy: 0.4, medium: 0.5, hard: 0.6 } as const;
/** Placements allowed for each cell that is empty at the start. */
export const STEPS_PER_BLANK = 2;

export const configSchema = closed({
  size: choiceSetting(SIZES, 4, 'Side of the board.'),
  difficulty: choiceSetting(
    ['easy', 'medium', 'hard'],
    'easy',
    'Empties 40, 50 or 60 % of the cells, always leaving one solution.',
  ),
  split: splitSchema,
  max_steps: Type.Optional(
    Type.Integer({
      minimum: 1,
      description: 'Placements allowed, refused ones included; twice the empty cells when absent.',
    }),
  ),
});

const rowsSchema = (description: string) =>
  Type.Array(Type.Array(Type.Integer({ minimum: 0, maximum: 16 })), {
    minItems: 4,
    maxItems: 16,
    description,
  });

export const optionsSchema = closed({
  puzzle: Type.Optional(rowsSchema('The givens row by row, 0 for an empty cell.')),
  solution: Type.Optional(
    rowsSchema('The full board that placements are compared with; needed only where several exist.'),
  ),
  grid: Type.Optional(rowsSchema('The board in play, when it starts with more than the givens.')),
});

export type SudokuConfig = Static<typeof configSchema>;
export type SudokuOptions = Static<typeof optionsSchema>;
