import type { SessionManager } from '../../sessions/manager.ts';
import type { Session as LiveSession } from '../../sessions/session.ts';
import type { Session, SessionDetail } from '../schemas.ts';

/**
 * A session as clients see it.
 * @param observation what is seen, where that is known
 */
export function sessionView(
  session: LiveSession,
  observation = session.episode.observe(session.format) as Session['observation'],
): Session {
  const { episode } = session;
  return {
    session_id: session.id,
    env_id: session.variant.environment.spec.id,
    group_id: session.groupId,
    episode_id: episode.id,
    seed: session.seed,
    ...(episode.dynamicsSeed !== undefined && { dynamics_seed: episode.dynamicsSeed }),
    step: episode.stepCount,
    observation,
    info: episode.info,
    expires_at: new Date(session.wall(session.expiresAt)).toISOString(),
  };
}

/**
 * Sessions that were just opened, in the same state where it can be copied, as clients see them: that is looked at once,
 * as a picture of each of thousands would hold up everybody. Where it fails they are
 * closed again, as nobody knows their ids.
 */
export function viewsOf(sessions: SessionManager, opened: readonly LiveSession[]): Session[] {
  try {
    const [first] = opened;
    const seen = first.variant.copyable ? sessionView(first).observation : undefined;
    return opened.map(session => sessionView(session, seen));
  } catch (error) {
    for (const session of opened) sessions.discard(session);
    throw error;
  }
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
