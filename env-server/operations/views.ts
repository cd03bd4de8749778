import type { SessionManager } from '../sessions/manager.ts';
import type { Session as LiveSession } from '../sessions/session.ts';
import type { Session, SessionDetail } from './schemas.ts';

/** A session as clients see it. */
export function sessionView(session: LiveSession): Session {
  return {
    session_id: session.id,
    env_id: session.variant.environment.spec.id,
    group_id: session.groupId,
    episode_id: session.episodeId,
    seed: session.seed,
    step: session.stepCount,
    observation: session.observe(session.format) as Session['observation'],
    info: session.info,
    expires_at: new Date(session.expiresAt).toISOString(),
  };
}

/** Sessions that were just opened as clients see them; where that fails they are closed again, as nobody knows their ids. */
export function viewsOf(sessions: SessionManager, opened: readonly LiveSession[]): Session[] {
  try {
    return opened.map(sessionView);
  } catch (error) {
    for (const session of opened) sessions.discard(session);
    throw error;
  }
}

export function sessionDetail(session: LiveSession): SessionDetail {
  const { variant } = session;
  return {
    ...sessionView(session),
    return: session.totalReward,
    terminated: session.terminated,
    truncated: session.truncated,
    structured: session.observe('structured'),
    config: variant.config,
    wrappers: [...variant.wrappers],
    options: session.options,
    observation_format: session.format,
    max_episode_steps: variant.maxSteps,
    created_at: new Date(session.createdAt).toISOString(),
  };
}
