import type { Sliced } from '../../../shared/slices.ts';
import { counted } from '../../../shared/text.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { inScheduledSlices } from '../../environments/core/slices.ts';
import { Problem } from '../../problems.ts';
import type { EpisodeState } from '../../sessions/episodes/episode.ts';
import { levelIdOf, stateKeyOf } from '../../sessions/episodes/state-queries.ts';
import { sizeOf } from '../../sessions/limits/budgets.ts';
import type { SessionManager } from '../../sessions/manager.ts';
import type { Session as LiveSession } from '../../sessions/session.ts';
import { WrittenResult } from '../operation.ts';
import type { Session, SessionDetail } from '../schemas/session.ts';

/** Most bytes of observations in one reply: writing a longer reply delays everyone. */
export const MAX_OBSERVATION_BYTES = 8 * 1024 * 1024;
/** Sessions of a group written without a break. */
const WRITTEN_AT_ONCE = 32;

/** Values that members of a group share when they begin in one state. */
type OpeningView = Pick<Session, 'level_id' | 'state_key' | 'observation'>;

function beginningView({ variant, episode, format }: LiveSession): OpeningView {
  const { state } = episode;
  const levelId = episode.stepCount > 0 ? undefined : levelIdOf(variant, state);
  return {
    ...(levelId !== undefined && { level_id: levelId }),
    ...(episode.stateKeys && { state_key: stateKeyOf(variant, state) }),
    observation: episode.observe(format) as Session['observation'],
  };
}

/**
 * A session as clients see it.
 * @param beginning its first observation, where known
 */
export function sessionView(session: LiveSession, beginning = beginningView(session)): Session {
  const { episode } = session;
  return {
    session_id: session.id,
    env_id: session.variant.environment.spec.id,
    group_id: session.groupId,
    episode_id: episode.id,
    seed: session.seed,
    ...(episode.dynamicsSeed !== undefined && { dynamics_seed: episode.dynamicsSeed }),
    ...reseedsView(episode),
    step: episode.stepCount,
    max_episode_steps: episode.maxSteps,
    ...beginning,
    info: episode.info,
    expires_at: new Date(session.wall(session.expiresAt)).toISOString(),
  };
}

/** Changes of the random stream, as clients see them. */
export const reseedsView = ({ reseeds }: Pick<EpisodeState, 'reseeds'>): Pick<Session, 'reseeds'> =>
  reseeds
    ? { reseeds: reseeds.map(({ step, dynamicsSeed }) => ({ step, dynamics_seed: dynamicsSeed })) }
    : {};

/**
 * The reply for sessions just opened; a large group is written in slices. If it fails, the sessions are closed again,
 * because nobody knows their ids.
 * @param withFirst the reply is the first session with the list of all; otherwise it is the list
 * @throws Problem `body_too_large` where the reply would be too large
 */
export function openedReply<T>(
  sessions: SessionManager,
  opened: readonly LiveSession[],
  withFirst: boolean,
): MaybePromise<T | WrittenResult> {
  if (opened.length > WRITTEN_AT_ONCE) return inScheduledSlices(writing(sessions, opened, withFirst));
  const views = [...discarding(sessions, opened, viewsOf(opened))];
  return (withFirst ? { ...views[0], sessions: views } : { sessions: views }) as T;
}

/** The reply to a request that opened a session or a group. */
export function createdReply(
  sessions: SessionManager,
  members: readonly LiveSession[],
): MaybePromise<Session | WrittenResult> {
  if (members.length > 1) return openedReply(sessions, members, true);
  const [view] = discarding(sessions, members, viewsOf(members));
  return view;
}

function* writing(
  sessions: SessionManager,
  opened: readonly LiveSession[],
  withFirst: boolean,
): Sliced<WrittenResult> {
  const texts: string[] = [];
  for (const view of discarding(sessions, opened, viewsOf(opened))) {
    texts.push(JSON.stringify(view));
    if (texts.length % WRITTEN_AT_ONCE === 0) yield;
  }
  const head = withFirst ? `${texts[0].slice(0, -1)},` : '{';
  return new WrittenResult(`${head}"sessions":[${texts.join(',')}]}`);
}

/** Closes the sessions when their views cannot be made. */
function* discarding(
  sessions: SessionManager,
  opened: readonly LiveSession[],
  views: Iterable<Session>,
): Generator<Session> {
  try {
    yield* views;
  } catch (error) {
    for (const session of opened) sessions.end(session);
    throw error;
  }
}

/**
 * Views of sessions that share a state where it can be copied: they are rendered once, because thousands of pictures
 * would delay everyone. A session that was played since it was listed is rendered again.
 */
function* viewsOf(opened: readonly LiveSession[]): Generator<Session> {
  const [first] = opened;
  const step = first.episode.stepCount;
  const seen = first.variant.copyable ? beginningView(first) : undefined;
  let bytes = 0;
  for (const session of opened) {
    const view = sessionView(session, session.episode.stepCount === step ? seen : undefined);
    bytes += sizeOf(view.observation) + sizeOf(view.reseeds ?? null);
    if (bytes > MAX_OBSERVATION_BYTES) throw tooMuchSeen(opened.length);
    yield view;
  }
}

function tooMuchSeen(count: number): Problem {
  return new Problem(
    'body_too_large',
    `the first observations of ${counted(count, 'session')} take more than the ${MAX_OBSERVATION_BYTES} bytes that one reply may have; nothing was opened: ask for fewer at once`,
  );
}

export function sessionDetail(session: LiveSession): SessionDetail {
  const { variant, episode } = session;
  return {
    ...sessionView(session),
    return: episode.totalReward,
    terminated: episode.terminated,
    truncated: episode.truncated,
    structured: episode.observe('structured'),
    config: variant.config,
    wrappers: [...variant.wrappers],
    options: episode.options,
    observation_format: session.format,
    created_at: new Date(session.createdAt).toISOString(),
    memory: { bytes: session.bytes, limit_bytes: session.mostBytes },
    ...(session.unsaved !== undefined && { persistence: { state: 'unsaved', reason: session.unsaved } }),
  };
}
