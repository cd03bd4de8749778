import { setImmediate as othersFirst } from 'node:timers/promises';
import type { Json, JsonObject } from '../../../../shared/json.ts';
import { Random } from '../../../../shared/random.ts';
import type { AnyEnvironment, Transition } from '../environment.ts';
import { sameJson, shown } from './play.ts';
import type { Findings } from './report.ts';

/** Steps of a replay among other episodes. */
const RIVAL_STEPS = 6;

export interface EpisodeSettings {
  readonly config: JsonObject;
  readonly options: JsonObject;
  readonly seed: number;
  readonly steps: number;
  /** Time by `performance.now` after which no step begins. Default: no limit. */
  readonly until?: number;
  /** Replays the first steps once more, with other episodes at the same time. */
  readonly rivals?: boolean;
}

/** True if states are complete, so a state can be stepped from twice. */
export function isCopyable(environment: AnyEnvironment): boolean {
  return environment.dispose === undefined;
}

/**
 * Part of a state that two plays of an episode must share: the whole state, or the observation where the state names
 * something outside.
 */
function shownState(environment: AnyEnvironment, state: Json): Json {
  return isCopyable(environment)
    ? state
    : [environment.observe(state, 'text'), environment.observe(state, 'structured')];
}

/** An episode as it was first played. */
export interface PlayedEpisode {
  readonly start: Json;
  readonly actions: readonly Json[];
  readonly results: readonly Transition<Json>[];
}

/**
 * Repeats the actions from the seed. False where the episode came out differently.
 * @param rivals before each step another episode begins and takes a step
 */
export async function checkReplay(
  environment: AnyEnvironment,
  settings: EpisodeSettings,
  { start, actions, results }: PlayedEpisode,
  findings: Findings,
  rivals = false,
): Promise<boolean> {
  const { config, options, seed, until = Number.POSITIVE_INFINITY } = settings;
  const rng = Random.fromSeed(seed);
  let state = await environment.reset(config, rng, options);
  try {
    const shownStart = shownState(environment, start);
    const shownAgain = shownState(environment, state);
    if (!sameJson(shownAgain, shownStart)) {
      findings.add(
        'determinism',
        `seed ${seed} began with ${shown(shownStart)} and then with ${shown(shownAgain)}`,
      );
      return false;
    }
    for (const [index, action] of actions.slice(0, rivals ? RIVAL_STEPS : undefined).entries()) {
      if (performance.now() >= until) return true;
      await othersFirst();
      if (rivals) await playRival(environment, settings, index + 1, action);
      const result = await environment.step(state, action, rng);
      state = result.state;
      const [now, before] = [result, results[index]].map(transition => ({
        ...transition,
        state: shownState(environment, transition.state),
      }));
      if (!sameJson(now, before)) {
        const when = rivals
          ? `when other episodes were played at the same time: ${OWN_STATE}`
          : 'the second time';
        findings.add('determinism', `step ${index + 1} (${shown(action)}) came out differently ${when}`);
        return false;
      }
    }
    return true;
  } finally {
    await environment.dispose?.(state);
  }
}

const OWN_STATE =
  'keep what an episode needs in its state (a service: under its session_id), not in variables that all episodes share';

/** Begins another episode and takes one step. Its faults are ignored: they show where such an episode is checked. */
async function playRival(
  environment: AnyEnvironment,
  { config, options, seed }: EpisodeSettings,
  number: number,
  action: Json,
): Promise<void> {
  const rng = Random.fromSeed(seed + number);
  try {
    let state = await environment.reset(config, rng, options);
    try {
      state = (await environment.step(state, action, rng)).state;
    } finally {
      await environment.dispose?.(state);
    }
  } catch {}
}
