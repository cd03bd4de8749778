import type { Static } from 'typebox';
import { closed, Type } from '../../../shared/schema/type.ts';
import { EndName, MAX_TEXT_LENGTH, NAME_LENGTH, REWARD, task } from '../definitions/definition-parts.ts';

const MAX_STATES = 20_000;
const MAX_ACTIONS = 1000;
/** Longest name of a state, in characters. */
export const MAX_STATE_NAME_LENGTH = 256;

const TabularOutcome = closed(
  {
    to: Type.String({
      maxLength: MAX_STATE_NAME_LENGTH,
      description: 'Name of the state that is reached.',
    }),
    probability: Type.Optional(
      Type.Number({
        exclusiveMinimum: 0,
        maximum: 1,
        default: 1,
        description: 'The outcomes of one action sum to 1.',
      }),
    ),
    reward: Type.Optional(Type.Number({ ...REWARD, default: 0 })),
  },
  { title: 'TabularOutcome' },
);

const TabularState = closed(
  {
    text: Type.String({ maxLength: MAX_TEXT_LENGTH, description: 'What the player sees.' }),
    success: Type.Optional(
      Type.Boolean({ default: false, description: 'An episode that ends here is a success.' }),
    ),
    ended_by: Type.Optional(
      EndName('Reason of the end, for `info.ended_by`; only in states without transitions.'),
    ),
    transitions: Type.Optional(
      Type.Record(Type.String(), Type.Array(TabularOutcome, { minItems: 1, maxItems: 1000 }), {
        maxProperties: MAX_ACTIONS,
        description:
          'Action → outcomes. An action that is not listed is invalid in this state; a state without transitions ends the episode.',
      }),
    ),
  },
  { title: 'TabularState' },
);

export const TabularDefinition = closed(
  {
    kind: Type.Literal('tabular'),
    ...task,
    actions: Type.Array(Type.String({ minLength: 1, maxLength: NAME_LENGTH }), {
      minItems: 1,
      maxItems: MAX_ACTIONS,
      description: 'Names of the actions; their ids count from 0.',
    }),
    start: Type.Record(Type.String(), Type.Number({ exclusiveMinimum: 0, maximum: 1 }), {
      minProperties: 1,
      maxProperties: MAX_STATES,
      description: 'State → probability to start there; they sum to 1.',
    }),
    states: Type.Record(Type.String(), TabularState, { minProperties: 1, maxProperties: MAX_STATES }),
  },
  { title: 'TabularDefinition', description: 'A Markov decision process, written out.' },
);
export type TabularDefinition = Static<typeof TabularDefinition>;
