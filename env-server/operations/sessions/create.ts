import { Type } from '../../../shared/schema/type.ts';
import { chain } from '../../environments/core/maybe-promise.ts';
import { serverOperation } from '../operation.ts';
import {
  AsksStateKey,
  Config,
  Count,
  DynamicsSeed,
  EnvId,
  Format,
  GroupId,
  Options,
  Seed,
  TtlSeconds,
  Wrappers,
} from '../schemas/fields.ts';
import { CreatedSession } from '../schemas/session.ts';
import { createdReply } from './views.ts';

export const create = serverOperation({
  name: 'create',
  method: 'POST',
  path: '/v1/sessions',
  status: 201,
  scope: 'play',
  tag: 'sessions',
  summary: 'Open a session, or a group of them',
  description:
    'Resets the environment and answers with the first observation. With `count` the members of the group start from the same seed and state; with `dynamics_seed` chance differs between them from there on.',
  keyed: true,
  plays: true,
  problems: [
    'unknown_environment',
    'too_many_sessions',
    'session_budget_exceeded',
    'token_budget_exceeded',
    'server_budget_exceeded',
  ],
  body: {
    env_id: EnvId,
    config: Type.Optional(Config),
    wrappers: Type.Optional(Wrappers),
    seed: Type.Optional(Seed),
    dynamics_seed: Type.Optional(DynamicsSeed),
    options: Type.Optional(Options),
    count: Type.Optional(Count),
    group_id: Type.Optional(GroupId),
    ttl_s: Type.Optional(TtlSeconds),
    observation_format: Type.Optional(Format),
    state_key: Type.Optional(AsksStateKey),
  },
  result: CreatedSession,
  handle({ sessions, catalog }, principal, input) {
    const variant = catalog.variant(input.env_id, input.config, input.wrappers);
    const { seed, dynamics_seed, options } = input;
    // Gymnasium writes "none" as null.
    const request = {
      ...input,
      seed: seed ?? undefined,
      dynamics_seed: dynamics_seed ?? undefined,
      options: options ?? undefined,
    };
    return chain(sessions.create(principal.name, variant, request), members =>
      createdReply(sessions, members),
    );
  },
});
