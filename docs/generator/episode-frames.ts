import type { AnyEnvironment } from '../../env-server/environments/core/environment.ts';
import { resolveConfig, resolveOptions, stepLimit } from '../../env-server/environments/core/settings.ts';
import type { Json, JsonObject } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';

/** Policies in the order of preference. */
const PLAYERS = ['optimal', 'oracle', 'heuristic'];
const POLICY_SEED = 1;

/** A moment of an episode. */
export interface Frame {
  /** The observation as text. */
  readonly text: string;
  /** The state as plain data. */
  readonly structured: Json;
  /** The step that led here; absent for the first frame. */
  readonly step?: { readonly count: number; readonly action: string; readonly reward: number };
}

export interface PlayedFrames {
  readonly policy: string;
  readonly frames: readonly Frame[];
  readonly success: boolean;
  /** True if the episode ended within the frames. */
  readonly ended: boolean;
  /** Height of a board that is made of markup, in pixels. */
  readonly boardHeight?: number;
}

export interface FrameOptions {
  readonly seed: number;
  readonly config: JsonObject;
  readonly mostSteps: number;
}

/**
 * Plays the best reference policy for a few steps.
 * @throws Error when the environment has no reference policy that plays well
 */
export async function playFrames(
  environment: AnyEnvironment,
  { seed, config, mostSteps }: FrameOptions,
): Promise<PlayedFrames> {
  const policy = PLAYERS.find(name => environment.references?.[name]);
  if (policy === undefined)
    throw new Error(`${environment.spec.id} has none of the policies ${PLAYERS.join(', ')}`);
  const resolved = resolveConfig(environment, config);
  const rng = Random.fromSeed(seed);
  const own = Random.fromSeed(POLICY_SEED);
  let state = await environment.reset(resolved, rng, resolveOptions(environment));
  const show = (step?: Frame['step']): Frame => {
    const observation = environment.observe(state, 'text');
    const text = typeof observation === 'string' ? observation : JSON.stringify(observation);
    return {
      text,
      structured: environment.observe(state, 'structured'),
      ...(step && { step }),
    };
  };
  const frames = [show()];
  const limit = Math.min(mostSteps, stepLimit(environment.spec, resolved));
  let success = false;
  let ended = false;
  for (let count = 1; count <= limit && !ended; count++) {
    const [action] = await environment.references![policy].plan(state, 1, own);
    if (action === undefined) break;
    const result = await environment.step(state, action, rng);
    state = result.state;
    success = result.info.success;
    ended = result.terminated || result.truncated === true;
    const written = typeof action === 'string' ? action : JSON.stringify(action);
    frames.push(show({ count, action: written, reward: result.reward }));
  }
  return { policy, frames, success, ended };
}
