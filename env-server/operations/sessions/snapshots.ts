import { Type } from '../../../shared/schema/type.ts';
import { chain } from '../../environments/core/maybe-promise.ts';
import { snapshotSize } from '../../sessions/episodes/snapshots.ts';
import { sessionOperation } from '../operation.ts';
import { Count, FreshDynamicsSeed, GroupId, NAME_LENGTH } from '../schemas/fields.ts';
import { ClonedSessions, Session, Snapshot } from '../schemas/session.ts';
import { openedReply, sessionView } from './views.ts';

export const snapshot = sessionOperation({
  name: 'snapshot',
  method: 'POST',
  path: '/v1/sessions/{session_id}/snapshot',
  status: 201,
  summary: 'Take a snapshot',
  description: 'State and random generator; restoring gives the same future. Lives as long as the session.',
  keyed: true,
  problems: [
    'too_many_snapshots',
    'unsupported',
    'session_budget_exceeded',
    'token_budget_exceeded',
    'server_budget_exceeded',
  ],
  result: Snapshot,
  handle(session) {
    session.variant.requireCopyable();
    session.snapshots?.requirePlace(session.id);
    session.episode.weigh();
    const episode = session.episode.capture();
    session.requireRoom(snapshotSize(episode));
    const snapshot_id = session.keep(episode);
    session.record('snapshot', { snapshot_id });
    return { snapshot_id };
  },
});

export const restore = sessionOperation({
  name: 'restore',
  method: 'POST',
  path: '/v1/sessions/{session_id}/restore',
  summary: 'Restore a snapshot',
  description:
    'Under a new `episode_id`; random draws come out as they did, unless `dynamics_seed` gives it another stream.',
  keyed: true,
  plays: true,
  problems: ['unknown_snapshot'],
  body: {
    snapshot_id: Type.String({
      minLength: 1,
      maxLength: NAME_LENGTH,
      description: 'A snapshot this session took.',
    }),
    dynamics_seed: Type.Optional(FreshDynamicsSeed),
  },
  result: Session,
  handle(session, { input: { snapshot_id, dynamics_seed } }) {
    session.restore(snapshot_id, dynamics_seed ?? undefined);
    session.record('restore', { snapshot_id, ...(dynamics_seed != null && { dynamics_seed }) });
    return sessionView(session);
  },
});

export const clone = sessionOperation({
  name: 'clone',
  method: 'POST',
  path: '/v1/sessions/{session_id}/clone',
  status: 201,
  summary: 'Open sessions in the same state',
  description:
    'The clones draw the same random numbers as the original would, unless `dynamics_seed` gives each a separate stream. They join its group unless `group_id` says otherwise.',
  keyed: true,
  plays: true,
  problems: [
    'too_many_sessions',
    'unsupported',
    'session_budget_exceeded',
    'token_budget_exceeded',
    'server_budget_exceeded',
  ],
  body: {
    count: Type.Optional(Count),
    group_id: Type.Optional(GroupId),
    dynamics_seed: Type.Optional(FreshDynamicsSeed),
  },
  result: ClonedSessions,
  handle(session, { services: { sessions }, input }) {
    const dynamics_seed = input.dynamics_seed ?? undefined;
    const clones = sessions.clone(session, { ...input, dynamics_seed });
    return chain(clones, opened => openedReply(sessions, opened, false));
  },
});
