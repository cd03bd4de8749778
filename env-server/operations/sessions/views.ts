import { Problem } from '../../problems.ts';
import { sizeOf } from '../../sessions/limits/size.ts';
import type { SessionManager } from '../../sessions/manager.ts';
import type { Session as LiveSession } from '../../sessions/session.ts';
import type { Session, SessionDetail } from '../schemas.ts';

/** What the observations in one reply may take: a longer reply holds up everybody while it is written. */
export const MAX_OBSERVATION_BYTES = 8 * 1024 * 1024;

/** What members of a group that begin in one state have in common. */
type BeginningView = Pick<Session, 'level_id' | 'observation'>;

function beginningView({ episode, format }: LiveSession): BeginningView {
  const { levelId } = episode;
  return {
    ...(levelId !== undefined && { level_id: levelId }),
    observation: episode.observe(format) as Session['observation'],
  };
}

/**
 * A session as clients see it.
 * @param beginning what is seen, where that is known
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
    step: episode.stepCount,
    ...beginning,
    info: episode.info,
    expires_at: new Date(session.wall(session.expiresAt)).toISOString(),
  };
}

/**
 * Sessions that were just opened, in the same state where it can be copied, as clients see them: that is looked at once,
 * as a picture of each of thousands would hold up everybody. Where it fails they are
 * closed again, as nobody knows their ids.
 * @throws Problem `body_too_large` where they would show more than one reply may
 */
export function viewsOf(sessions: SessionManager, opened: readonly LiveSession[]): Session[] {
  try {
    const [first] = opened;
    const seen = first.variant.copyable ? beginningView(first) : undefined;
    let bytes = 0;
    return opened.map(session => {
      const view = sessionView(session, seen);
      bytes += sizeOf(view.observation);
      if (bytes > MAX_OBSERVATION_BYTES) throw tooMuchSeen(opened.length);
      return view;
    });
  } catch (error) {
    for (const session of opened) sessions.discard(session);
    throw error;
  }
}

function tooMuchSeen(count: number): Problem {
  return new Problem(
    'body_too_large',
    `the first observations of ${count} sessions take more than the ${MAX_OBSERVATION_BYTES} bytes that one reply may have; nothing was opened: ask for fewer at once`,
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
    max_episode_steps: variant.maxSteps,
    created_at: new Date(session.createdAt).toISOString(),
    memory: { bytes: session.bytes, limit_bytes: session.mostBytes },
    ...(session.unsaved !== undefined && { persistence: { state: 'unsaved', reason: session.unsaved } }),
  };
}
