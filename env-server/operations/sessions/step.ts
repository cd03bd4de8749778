import type { Static } from 'typebox';
import { Type } from '../../../shared/schema/type.ts';
import { chain } from '../../environments/core/maybe-promise.ts';
import { Problem } from '../../problems.ts';
import { planOf, validActionsOf } from '../../sessions/episodes/state-queries.ts';
import type { Session } from '../../sessions/session.ts';
import { sessionOperation } from '../operation.ts';
import { AnyJson, NAME_LENGTH } from '../schemas/fields.ts';
import { ReferencePlan, StepResult, ValidActions } from '../schemas/session.ts';

const MAX_STEP_MS = 600_000;

export const step = sessionOperation({
  name: 'step',
  method: 'POST',
  path: '/v1/sessions/{session_id}/step',
  summary: 'Take an action',
  keyed: true,
  plays: true,
  problems: [
    'episode_over',
    'wrong_step',
    'session_rolled_back',
    'invalid_action',
    'session_budget_exceeded',
    'token_budget_exceeded',
    'server_budget_exceeded',
    'session_unsaved',
  ],
  body: {
    action: AnyJson({ description: 'An action of the environment’s `action_space`.' }),
    expected_step: Type.Optional(
      Type.Integer({
        minimum: 1,
        description:
          'The `step` the result should carry: the session’s step + 1. Anything else is refused with `wrong_step`.',
      }),
    ),
    timeout_ms: Type.Optional(
      Type.Number({
        exclusiveMinimum: 0,
        maximum: MAX_STEP_MS,
        description:
          'How long to wait for the result. The step itself continues after `step_timeout`; its reply is stored under the request key.',
      }),
    ),
  },
  result: StepResult,
  serialize,
  handle(session, { input: { action, expected_step: expected } }) {
    const { id, episode } = session;
    if (session.rolledBack) throw rolledBack(id, episode);
    if (session.unsavedUnreported) throw cannotBeStored(id, session.unsaved);
    if (expected !== undefined && expected !== episode.stepCount + 1)
      throw wrongStep(id, episode.stepCount, expected);
    return episode.step(action);
  },
});

/** The session is at an earlier step than its client last saw. */
const rolledBack = (id: string, { id: episodeId, stepCount }: Session['episode']): Problem =>
  new Problem(
    'session_rolled_back',
    `the server ended without warning; session ${id} was resumed at step ${stepCount} of ${episodeId}, the last that was stored`,
  );

/** Problem of the first operation on a session that is lost with the server because it cannot be stored. */
const cannotBeStored = (id: string, reason: string | undefined): Problem =>
  new Problem('session_unsaved', `session ${id} cannot be stored, and ends with this server: ${reason}`);

/** The client expects another step of the session. */
const wrongStep = (id: string, step: number, expected: number): Problem =>
  new Problem(
    'wrong_step',
    `session ${id} is at step ${step}, so its next step is ${step + 1}; expected_step is ${expected}`,
  );

/** Writes the result in the order of `StepResult`. Ids are URL-safe and need no escaping. */
function serialize(result: Static<typeof StepResult>): string {
  const key = result.state_key === undefined ? '' : `,"state_key":"${result.state_key}"`;
  return `{"session_id":"${result.session_id}","episode_id":"${result.episode_id}","step":${result.step},"observation":${JSON.stringify(result.observation)}${key}${outcomeText(result)}`;
}

type Outcome = Pick<Static<typeof StepResult>, 'reward' | 'terminated' | 'truncated' | 'info'>;

/** Environments share frozen `info` objects between steps, so one text serves many outcomes. */
const knownOutcomes = new WeakMap<object, Outcome & { readonly text: string }>();

/** Text of a result after the observation. */
function outcomeText({ reward, terminated, truncated, info }: Outcome): string {
  const known = knownOutcomes.get(info);
  if (known?.reward === reward && known.terminated === terminated && known.truncated === truncated) {
    return known.text;
  }
  const text = `,"reward":${reward},"terminated":${terminated},"truncated":${truncated},"info":${JSON.stringify(info)}}`;
  if (Object.isFrozen(info)) knownOutcomes.set(info, { reward, terminated, truncated, info, text });
  return text;
}

export const validActions = sessionOperation({
  name: 'valid_actions',
  method: 'GET',
  path: '/v1/sessions/{session_id}/valid-actions',
  summary: 'List the actions that are legal now',
  plays: true,
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
  summary: 'Ask a reference policy for its next actions',
  description: 'The next actions from the current state, assuming no chance events. Takes no step.',
  plays: true,
  problems: ['unknown_reference'],
  body: {
    policy: Type.Optional(Type.String({ maxLength: NAME_LENGTH, default: DEFAULT_POLICY })),
    count: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_ACTIONS, default: 1 })),
    turns: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MAX_ACTIONS,
        description: 'Plans that will still be requested, this one included; absent: no limit.',
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
