import { Type } from '../../../shared/schema/type.ts';
import { chain } from '../../environments/core/maybe-promise.ts';
import { planOf, validActionsOf } from '../../sessions/episodes/state-queries.ts';
import { sessionOperation } from '../operation.ts';
import { NAME_LENGTH } from '../schemas/fields.ts';
import { ReferencePlan, ValidActions } from '../schemas/session.ts';

export const validActions = sessionOperation({
  name: 'valid_actions',
  method: 'GET',
  path: '/v1/sessions/{session_id}/valid-actions',
  status: 200,
  summary: 'The actions that are legal now',
  keyed: false,
  plays: true,
  problems: [],
  result: ValidActions,
  handle: ({ variant, episode }) =>
    chain(validActionsOf(variant, episode), actions => ({ valid_actions: actions && [...actions] })),
});

const DEFAULT_POLICY = 'optimal';
const MAX_ACTIONS = 10_000;

export const reference = sessionOperation({
  name: 'reference',
  method: 'POST',
  path: '/v1/sessions/{session_id}/reference',
  status: 200,
  summary: 'What a reference policy would do',
  description: 'The next actions from the current state, as if nothing random interfered. Steps nothing.',
  keyed: false,
  plays: true,
  problems: ['unknown_reference'],
  body: {
    policy: Type.Optional(Type.String({ maxLength: NAME_LENGTH, default: DEFAULT_POLICY })),
    count: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_ACTIONS, default: 1 })),
    turns: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MAX_ACTIONS,
        description: 'How many plans may still be asked for, this one included; absent: as many as you like.',
      }),
    ),
  },
  result: ReferencePlan,
  handle({ variant, episode }, { input: { policy = DEFAULT_POLICY, count = 1, turns } }) {
    return chain(planOf(variant, episode, { policy, count, turns }), actions => ({
      policy,
      actions: [...actions],
    }));
  },
});
