import type { Static } from 'typebox';
import { closed, Type } from '../../../shared/schema/type.ts';
import { behavior, task } from '../definitions/definition-parts.ts';
import { wordLists } from '../definitions/word-lists.ts';

export const MAX_SOURCE_LENGTH = 256 * 1024;

export const ScriptDefinition = closed(
  {
    kind: Type.Literal('script'),
    ...task,
    ...behavior,
    ...wordLists,
    source: Type.Union(
      [
        Type.String({ minLength: 1, maxLength: MAX_SOURCE_LENGTH }),
        Type.Array(Type.String({ maxLength: MAX_SOURCE_LENGTH }), { minItems: 1, maxItems: 20_000 }),
      ],
      {
        description:
          'JavaScript, whole or line by line, with the functions `reset(config, rng, options)`, `step(state, action, rng)`, `observe(state)` and optionally `validActions(state)`.',
      },
    ),
  },
  { title: 'ScriptDefinition', description: 'JavaScript that runs in a sandbox.' },
);
export type ScriptDefinition = Static<typeof ScriptDefinition>;

/** The source of a script as one text. */
export function sourceOf({ source }: ScriptDefinition): string {
  return typeof source === 'string' ? source : source.join('\n');
}
