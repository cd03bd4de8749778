import type { Static } from 'typebox';
import { closed, Type } from '../../../shared/schema/type.ts';
import { dataFile, indexOption } from '../core/datasets/question.ts';
import { choiceSetting, integerSetting } from '../core/setting-fields.ts';
import { splitSchema } from '../core/splits.ts';
import { TOPICS } from './theorems.ts';

export const MAX_STEPS = 100;

export const configSchema = closed({
  backend: choiceSetting(
    ['auto', 'lean', 'kimina', 'repl', 'builtin', 'imitation'],
    'auto',
    'Who checks proofs: `lean` on the server’s machine, a Kimina Lean server, a local Lean REPL process, or the built-in checker, which knows propositional logic only. `auto` takes Lean where it is installed, else the built-in checker. `imitation` is a former name of that.',
  ),
  server_url: Type.Optional(
    Type.String({ minLength: 1, maxLength: 2048, description: 'Address of the Kimina Lean server.' }),
  ),
  timeout_ms: integerSetting(60_000, [100, 600_000], 'Time for one check by Lean.'),
  topic: choiceSetting(TOPICS, 'logic', 'What the generated theorems are about; all but logic needs Lean.'),
  automation: choiceSetting(
    ['none', 'arithmetic', 'all'],
    'none',
    'Has no effect any more: the built-in checker has no deciding tactics.',
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
  max_steps: integerSetting(MAX_STEPS, [1], 'Tactics before the episode is cut, rejected ones included.'),
});

export const optionsSchema = closed({
  statement: Type.Optional(
    Type.String({ minLength: 1, maxLength: 4000, description: 'theorem … : … := by' }),
  ),
  informal: Type.Optional(Type.String({ maxLength: 4000, description: 'The statement in words.' })),
  index: indexOption('Theorem of the data file within the split, from 0.'),
});

export type LeanConfig = Static<typeof configSchema>;

export type LeanOptions = Static<typeof optionsSchema>;
