import type { Static } from 'typebox';
import { Type } from '../../../shared/schema/type.ts';
import { dataFile, indexOption } from '../core/datasets/question.ts';
import { splitSchema } from '../core/splits.ts';
import { TOPICS } from './theorems.ts';

export const MAX_STEPS = 100;

export const configSchema = Type.Object(
  {
    backend: Type.Union(
      [
        Type.Literal('auto'),
        Type.Literal('lean'),
        Type.Literal('kimina'),
        Type.Literal('repl'),
        Type.Literal('builtin'),
        Type.Literal('imitation'),
      ],
      {
        default: 'auto',
        description:
          'Who checks proofs: `lean` on the server’s machine, a Kimina Lean server, a local Lean REPL process, or the built-in checker, which knows propositional logic only. `auto` takes Lean where it is installed, else the built-in checker. `imitation` is a former name of that.',
      },
    ),
    server_url: Type.Optional(
      Type.String({ minLength: 1, maxLength: 2048, description: 'Address of the Kimina Lean server.' }),
    ),
    timeout_ms: Type.Integer({
      default: 60_000,
      minimum: 100,
      maximum: 600_000,
      description: 'Time for one check by Lean.',
    }),
    topic: Type.Union(
      TOPICS.map(topic => Type.Literal(topic)),
      {
        default: 'logic',
        description: 'What the generated theorems are about; all but logic needs Lean.',
      },
    ),
    automation: Type.Union(
      (['none', 'arithmetic', 'all'] as const).map(level => Type.Literal(level)),
      {
        default: 'none',
        description: 'Has no effect any more: the built-in checker has no deciding tactics.',
      },
    ),
    split: splitSchema,
    data: dataFile(
      'File of theorems instead of generated ones: .jsonl, .json or .parquet in the form of miniF2F (formal_statement, header, name).',
    ),
    header: Type.String({
      default: '',
      maxLength: 4000,
      description: 'Imports for theorems that bring none, e.g. import Mathlib.',
    }),
    max_steps: Type.Integer({
      default: MAX_STEPS,
      minimum: 1,
      description: 'Tactics before the episode is cut, rejected ones included.',
    }),
  },
  { additionalProperties: false },
);

export const optionsSchema = Type.Object(
  {
    statement: Type.Optional(
      Type.String({ minLength: 1, maxLength: 4000, description: 'theorem … : … := by' }),
    ),
    informal: Type.Optional(Type.String({ maxLength: 4000, description: 'The statement in words.' })),
    index: indexOption('Theorem of the data file within the split, from 0.'),
  },
  { additionalProperties: false },
);

export type LeanConfig = Static<typeof configSchema>;

export type LeanOptions = Static<typeof optionsSchema>;
