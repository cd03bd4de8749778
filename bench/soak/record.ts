import { isDeepStrictEqual } from 'node:util';
import type { Json, JsonObject } from '../../shared/json.ts';

/** Result of a step, as in its reply. */
export interface TakenStep {
  readonly action: Json;
  readonly observation: Json;
  readonly reward: number;
  readonly terminated: boolean;
  readonly truncated: boolean;
}

/** An episode as its client saw it. */
export interface Episode {
  readonly id: string;
  /** Null where nothing is drawn. */
  readonly seed: number | null;
  readonly first: Json;
  readonly steps: readonly TakenStep[];
}

const SEEN = ['observation', 'reward', 'terminated', 'truncated'] as const;

/** An episode from the reply that began it. */
export function begun({ episode_id, seed, observation }: JsonObject): Episode {
  return { id: String(episode_id), seed: seed as number | null, first: observation, steps: [] };
}

/**
 * The episode with one step more.
 * @throws Error when the reply is not that of the next step
 */
export function withStep(episode: Episode, action: Json, result: JsonObject): Episode {
  const next = episode.steps.length + 1;
  if (result.step !== next || result.episode_id !== episode.id) {
    throw new Error(
      `step ${next} of ${episode.id} was answered as step ${result.step} of ${result.episode_id}: a step was lost or taken twice`,
    );
  }
  const { observation, reward, terminated, truncated } = result as unknown as TakenStep;
  return { ...episode, steps: [...episode.steps, { action, observation, reward, terminated, truncated }] };
}

/** Last observation of its client. */
function seenLast({ first, steps }: Episode): Json {
  return steps.at(-1)?.observation ?? first;
}

export function isOver({ steps }: Episode): boolean {
  const last = steps.at(-1);
  return last !== undefined && (last.terminated || last.truncated);
}

/**
 * What the server says of where a session stands.
 * @throws Error when its client saw another thing
 */
export function requireSame(episode: Episode, detail: JsonObject): void {
  const wanted = {
    episode_id: episode.id,
    step: episode.steps.length,
    observation: seenLast(episode),
  };
  for (const [key, value] of Object.entries(wanted)) {
    if (!isDeepStrictEqual(detail[key], value)) {
      throw new Error(
        `${episode.id} at step ${wanted.step}: the server has ${key} ${JSON.stringify(detail[key])}, its client saw ${JSON.stringify(value)}`,
      );
    }
  }
}

/**
 * The server's record of an episode.
 * @throws Error when it is not the client's own: a step was lost, taken twice, or had another outcome
 */
export function requireTrajectory(episode: Episode, records: readonly JsonObject[]): void {
  const [reset, ...steps] = records;
  if (reset?.episode_id !== episode.id) {
    throw new Error(
      `the server plays ${JSON.stringify(reset?.episode_id)} with ${steps.length} steps, its client ${episode.id} with ${episode.steps.length}`,
    );
  }
  if (!isDeepStrictEqual(reset.observation, episode.first)) {
    throw new Error(`${episode.id} began otherwise: ${JSON.stringify(reset.observation)}`);
  }
  requireSteps(
    episode,
    steps.map(step => step as unknown as TakenStep),
    'the server’s record',
  );
  steps.forEach((step, i) => {
    if (!isDeepStrictEqual(step.action, episode.steps[i].action)) {
      throw new Error(
        `${episode.id}: action ${i + 1} was ${JSON.stringify(episode.steps[i].action)}, not ${JSON.stringify(step.action)}`,
      );
    }
  });
}

/** @throws Error when other steps than the client's own are the same episode’s in `where` */
export function requireSteps(
  episode: Episode,
  steps: readonly Pick<TakenStep, (typeof SEEN)[number]>[],
  where: string,
): void {
  if (steps.length !== episode.steps.length) {
    throw new Error(
      `${episode.id}: ${where} has ${steps.length} steps, its client took ${episode.steps.length}`,
    );
  }
  steps.forEach((step, i) => {
    for (const key of SEEN) {
      if (isDeepStrictEqual(step[key], episode.steps[i][key])) continue;
      throw new Error(
        `${episode.id}: in ${where} step ${i + 1} has ${key} ${JSON.stringify(step[key])}, its client saw ${JSON.stringify(episode.steps[i][key])}`,
      );
    }
  });
}
