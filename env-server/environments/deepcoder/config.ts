import type { Static } from 'typebox';
import type { Json } from '../../../shared/json.ts';
import { Type } from '../../../shared/schema/type.ts';
import { dataFile, indexOption } from '../core/datasets/question.ts';
import { splitSchema } from '../core/splits.ts';
import { TASKS } from './tasks.ts';

export const MAX_STATEMENT_LENGTH = 100_000;

export const configSchema = Type.Object(
  {
    split: splitSchema,
    data: dataFile(
      'File of tasks instead of the shipped ones: .jsonl, .json or .parquet in the form of DeepCoder (problem, tests, starter_code, metadata).',
    ),
    cpu_s: Type.Integer({
      default: 4,
      minimum: 1,
      maximum: 60,
      description: 'Processor seconds for one test.',
    }),
    wall_s: Type.Number({ default: 6, minimum: 0.1, maximum: 120, description: 'Seconds for one test.' }),
    total_s: Type.Number({
      default: 30,
      minimum: 0.1,
      maximum: 600,
      description: 'Seconds for all tests of a program.',
    }),
    memory_mb: Type.Integer({
      default: 256,
      minimum: 64,
      maximum: 4096,
      description: 'Memory of a test, in MiB.',
    }),
    output_bytes: Type.Integer({
      default: 1_000_000,
      minimum: 100,
      maximum: 64_000_000,
      description: 'What a test may print.',
    }),
  },
  { additionalProperties: false },
);

const jsonValue = Type.Unsafe<Json>({});

export const optionsSchema = Type.Object(
  {
    name: Type.Optional(
      Type.Union(
        TASKS.map(task => Type.Literal(task.name)),
        { description: 'A shipped task.' },
      ),
    ),
    index: indexOption('Task within the split, from 0.'),
    statement: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: MAX_STATEMENT_LENGTH,
        description: 'A task of your own; goes with tests.',
      }),
    ),
    entry: Type.Optional(
      Type.String({
        pattern: '^[A-Za-z_][A-Za-z0-9_]*$',
        maxLength: 100,
        description: 'The function that its tests call.',
      }),
    ),
    tests: Type.Optional(
      Type.Array(
        Type.Union([
          Type.Object({ input: Type.String(), output: Type.String() }, { additionalProperties: false }),
          Type.Object(
            { arguments: Type.Array(jsonValue), result: jsonValue },
            { additionalProperties: false },
          ),
        ]),
        {
          minItems: 1,
          maxItems: 1000,
          description: 'Input and output, or arguments and result where there is an entry.',
        },
      ),
    ),
  },
  { additionalProperties: false },
);

export type DeepCoderConfig = Static<typeof configSchema>;
export type DeepCoderOptions = Static<typeof optionsSchema>;
