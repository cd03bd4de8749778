import { Type } from 'typebox';
import { chain } from '../../environments/core/maybe-promise.ts';
import { sessionOperation } from '../operation.ts';
import { Options, Seed, Session } from '../schemas.ts';
import { sessionView } from './views.ts';

export const reset = sessionOperation({
  name: 'reset',
  method: 'POST',
  path: '/v1/sessions/{session_id}/reset',
  status: 200,
  summary: 'Begin a new episode',
  keyed: true,
  plays: true,
  problems: ['session_budget_exceeded'],
  body: { seed: Type.Optional(Seed), options: Type.Optional(Options) },
  result: Session,
  handle: (_services, session, input) =>
    chain(session.reset(input.seed ?? undefined, input.options ?? undefined), () => sessionView(session)),
});
