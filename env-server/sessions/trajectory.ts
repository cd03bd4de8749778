import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';
import type { TrajectoryRecord } from './episodes/episode.ts';
import type { Session } from './session.ts';

/** The reset and every step of the episode that a session plays. */
export function trajectoryOf(session: Session): MaybePromise<TrajectoryRecord[]> {
  const { episode, variant } = session;
  return chain(episode.records(), ([first, ...steps]) => [
    {
      type: 'reset',
      session_id: session.id,
      episode_id: episode.id,
      env_id: variant.environment.spec.id,
      config: variant.config,
      wrappers: [...variant.wrappers],
      seed: session.seed,
      ...(episode.dynamicsSeed !== undefined && { dynamics_seed: episode.dynamicsSeed }),
      options: episode.options,
      step: first.step,
      observation: first.observation,
      info: first.info,
    },
    ...steps,
  ]);
}
