import type { Json } from '../../../shared/json.ts';
import { Type } from '../../../shared/schema/type.ts';
import { drawnPolicy } from '../../environments/core/actions.ts';
import type { Description, ReferencePolicy } from '../../environments/core/environment.ts';
import { MAX_ACTIONS, NAME_LENGTH } from './definition-parts.ts';
import { DefinitionFaults } from './fault.ts';

/** Most bytes of JSON of a definition's vocabulary or example actions. */
const MAX_LIST_BYTES = 64 * 1024;
const MAX_WORDS = 10_000;

/** Words for small policies and sample actions for the random player. */
export const wordLists = {
  vocabulary: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: NAME_LENGTH }), {
      minItems: 1,
      maxItems: MAX_WORDS,
      description:
        'Words that all observations and actions are made of, for word-level tokenizers; leave it out for free text. At most 64 KiB as JSON.',
    }),
  ),
  actions: Type.Optional(
    Type.Array(Type.Unsafe<Json>({}), {
      minItems: 1,
      maxItems: MAX_ACTIONS,
      description:
        'Example actions of a space of text or JSON: the reference player `random` and warm starts draw from them. Players may take others. At most 64 KiB as JSON.',
    }),
  ),
};

interface WordLists {
  readonly vocabulary?: readonly string[];
  readonly actions?: readonly Json[];
}

/** The lists in an environment's form. */
export interface CompiledLists {
  readonly description: Pick<Description, 'vocabulary' | 'exampleActions'>;
  readonly references?: { readonly random: ReferencePolicy<unknown> };
}

/**
 * @param isAction true for a member of the action space
 * @param faults receives the faults, with JSON pointers
 */
export function compileLists(
  { vocabulary, actions }: WordLists,
  isAction: (action: Json) => boolean,
  faults: DefinitionFaults,
): CompiledLists {
  for (const [name, list] of Object.entries({ vocabulary, actions })) {
    const bytes = list ? Buffer.byteLength(JSON.stringify(list)) : 0;
    if (bytes > MAX_LIST_BYTES) {
      faults.add(`/${name}`, `has ${bytes} bytes as JSON; at most ${MAX_LIST_BYTES} are taken`);
    }
  }
  actions?.forEach((action, i) => {
    if (!isAction(action)) faults.add(`/actions/${i}`, 'is not an action of the action space');
  });
  return {
    description: { ...(vocabulary && { vocabulary }), ...(actions && { exampleActions: actions }) },
    ...(actions && { references: { random: drawnPolicy(actions) } }),
  };
}

/**
 * {@link compileLists} for a definition that gets no other check.
 * @throws Problem `invalid_request` with JSON pointers
 */
export function listsOf(definition: WordLists, isAction: (action: Json) => boolean): CompiledLists {
  const faults = new DefinitionFaults();
  const lists = compileLists(definition, isAction, faults);
  faults.raise();
  return lists;
}
