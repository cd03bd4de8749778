import type { Static } from 'typebox';
import { Type } from '../../../shared/schema/type.ts';
import type { Sliced } from '../../../shared/slices.ts';
import { isPainted } from '../../environments/core/environment.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import { inScheduledSlices } from '../../environments/core/slices.ts';
import { beginEpisode, type EpisodeState } from '../../sessions/episodes/episode.ts';
import { snapshotSize } from '../../sessions/episodes/snapshots.ts';
import { sessionBudgetExceeded, sizeOf } from '../../sessions/limits/budgets.ts';
import type { ListRequest } from '../../sessions/manager.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Session as LiveSession } from '../../sessions/session.ts';
import { recordedEpisode } from '../../sessions/storage/recorded-episode.ts';
import { type Services, serverOperation, sessionOperation } from '../operation.ts';
import {
  AsksStateKey,
  Config,
  Count,
  DynamicsSeed,
  EnvId,
  Format,
  FreshDynamicsSeed,
  GroupId,
  NAME_LENGTH,
  Options,
  Seed,
  SessionId,
  TtlSeconds,
  Wrappers,
} from '../schemas/fields.ts';
import {
  ClonedSessions,
  CreatedSession,
  Session,
  SessionDetail,
  SessionPage,
  Snapshot,
} from '../schemas/session.ts';
import { createdReply, MAX_OBSERVATION_BYTES, openedReply, sessionDetail, sessionView } from './views.ts';

export const create = serverOperation({
  name: 'create',
  method: 'POST',
  path: '/v1/sessions',
  status: 201,
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
  handle({ services: { sessions, catalog }, request: { principal }, input }) {
    const variant = catalog.variant(input.env_id, input.config, input.wrappers);
    const { seed, dynamics_seed, options } = input;
    // Gymnasium writes "none" as null.
    const wanted = {
      ...input,
      seed: seed ?? undefined,
      dynamics_seed: dynamics_seed ?? undefined,
      options: options ?? undefined,
    };
    return chain(sessions.create(principal.name, variant, wanted), members =>
      createdReply(sessions, members),
    );
  },
});

export const get = sessionOperation({
  name: 'get',
  method: 'GET',
  path: '/v1/sessions/{session_id}',
  summary: 'Get a session',
  plays: true,
  result: SessionDetail,
  handle(session) {
    session.acknowledge();
    session.episode.weigh();
    return sessionDetail(session);
  },
});

const DEFAULT_PAGE = 100;
const MAX_PAGE = 1000;
/** Sessions read before other work gets a turn on the event loop; for sessions that show pictures it is one. */
const VIEWS_AT_A_TIME = 20;

export const list = serverOperation({
  name: 'list',
  method: 'GET',
  path: '/v1/sessions',
  summary: 'List your sessions, oldest first',
  plays: true,
  query: {
    env_id: Type.Optional(EnvId),
    group_id: Type.Optional(GroupId),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
    cursor: Type.Optional(
      Type.String({ pattern: '^[0-9]{1,15}$', description: '`next_cursor` of the page before.' }),
    ),
  },
  result: SessionPage,
  handle({ services, request: { principal }, input }) {
    const limit = input.limit ?? DEFAULT_PAGE;
    const page = {
      envId: input.env_id,
      groupId: input.group_id,
      after: input.cursor === undefined ? 0 : Number(input.cursor),
      limit: limit + 1,
    };
    return chain(listed(services, principal, page), found =>
      chain(inScheduledSlices(viewsOf(found)), views => pageOf(views, limit)),
    );
  },
});

/** Sessions of the principal for a page, plus one if there are more. */
function listed(
  { sessions, shared }: Services,
  principal: Principal,
  request: ListRequest,
): MaybePromise<readonly LiveSession[]> {
  return shared ? shared.seen.list(principal, request) : sessions.list(principal, request);
}

interface ListedSessions {
  readonly serial: number;
  /** Undefined where the page ends earlier, because the reply has reached its size limit. */
  readonly session?: Session;
}

function* viewsOf(found: readonly LiveSession[]): Sliced<ListedSessions[]> {
  const listed: ListedSessions[] = [];
  let bytes = 0;
  for (const session of found) {
    if (session.closed) continue;
    const { serial } = session;
    if (bytes > MAX_OBSERVATION_BYTES) {
      listed.push({ serial });
      break;
    }
    const view = sessionView(session);
    bytes += sizeOf(view.observation);
    listed.push({ serial, session: view });
    if (isPainted(session.format) || listed.length % VIEWS_AT_A_TIME === 0) yield;
  }
  return listed;
}

function pageOf(listed: readonly ListedSessions[], limit: number): Static<typeof SessionPage> {
  const sessions: Session[] = [];
  let cursor = 0;
  for (const { serial, session } of listed) {
    if (!session || sessions.length === limit) return { sessions, next_cursor: String(cursor) };
    sessions.push(session);
    cursor = serial;
  }
  return { sessions, next_cursor: null };
}

export const reset = sessionOperation({
  name: 'reset',
  method: 'POST',
  path: '/v1/sessions/{session_id}/reset',
  summary: 'Begin a new episode',
  keyed: true,
  plays: true,
  problems: ['session_budget_exceeded'],
  body: {
    seed: Type.Optional(Seed),
    dynamics_seed: Type.Optional(DynamicsSeed),
    options: Type.Optional(Options),
    state_key: Type.Optional(AsksStateKey),
  },
  result: Session,
  handle(session, { input: { seed, dynamics_seed, options, state_key } }) {
    // Gymnasium writes "none" as null.
    const request = {
      seed: seed ?? undefined,
      dynamicsSeed: dynamics_seed ?? undefined,
      options: options ?? undefined,
      stateKeys: state_key ?? session.episode.stateKeys,
    };
    return chain(beginEpisode(session.variant, request), episode => {
      goOnWith(session, episode);
      return sessionView(session);
    });
  },
});

/** @throws Problem `session_budget_exceeded`, `session_closed` when the session ended meanwhile */
function goOnWith(session: LiveSession, episode: EpisodeState): void {
  const { id, variant, bytes, mostBytes, room } = session;
  try {
    session.requireOpen();
    const grown = episode.bytes - session.episode.bytes;
    if (grown > Math.max(0, room)) throw sessionBudgetExceeded(id, bytes, grown, mostBytes);
  } catch (error) {
    variant.releaseState(episode.state);
    throw error;
  }
  session.episode.dispose();
  session.begin(episode);
  const { seed, options } = episode;
  session.record('reset', { seed, options, episode: recordedEpisode(episode) });
}

export const close = serverOperation({
  name: 'close',
  method: 'DELETE',
  path: '/v1/sessions/{session_id}',
  status: 204,
  summary: 'Close a session',
  description: 'Does not wait for a step in flight. Closing twice has no effect.',
  problems: ['unknown_session'],
  params: { session_id: SessionId },
  result: Type.Null(),
  handle({ services, request, input }) {
    services.sessions.close(request.principal, input.session_id);
    return null;
  },
});

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
