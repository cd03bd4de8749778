import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { checkSymbols } from '../core/drawing/grid.ts';
import type { Environment, Transition } from '../core/environment.ts';
import type { FrozenLakeConfig } from './config.ts';
import { createLake, groundKey } from './generator.ts';
import { observationSpaces, observe } from './observation.ts';
import { optimal, random } from './reference.ts';
import { render } from './render.ts';
import {
  ACTIONS,
  type FrozenLakeState,
  isHole,
  isOver,
  MOVED,
  neighbor,
  REACHED_GOAL,
  STAYED,
  STAYED_ON_GOAL,
  slippedDirection,
  UNKNOWN_ACTION,
} from './rules.ts';
import { describe, spec } from './spec.ts';

/** FrozenLake-v0: Gymnasium's rules on RAGEN's random lakes. */
export const frozenLake = {
  spec,
  describe,
  observationSpaces,
  checkConfig: config => checkSymbols(config.symbols),

  reset(config: FrozenLakeConfig, rng: Random, options: JsonObject): FrozenLakeState {
    const { lake, position } = createLake(config, rng, options);
    return { lake, position, steps: 0 };
  },

  levelKey: ({ lake }: FrozenLakeState) => groundKey(lake),
  step,
  observe,
  render,
  references: { optimal, random },
} satisfies Environment<FrozenLakeConfig, FrozenLakeState>;

function step(state: FrozenLakeState, action: Json, rng: Random): Transition<FrozenLakeState> {
  const { lake, position } = state;
  const over = isOver(lake, position);
  const chosen = ACTIONS.indexOf(action);
  if (chosen < 0) return { state, reward: 0, terminated: over, info: UNKNOWN_ACTION };
  if (over) {
    return { state, reward: 0, terminated: true, info: position === lake.goal ? STAYED_ON_GOAL : STAYED };
  }
  const direction = lake.success_rate === 1 ? chosen : slippedDirection(lake, chosen, rng.float());
  const next = neighbor(lake, position, direction);
  const moved: FrozenLakeState = { lake, position: next, steps: state.steps + 1 };
  if (next === lake.goal) return { state: moved, reward: 1, terminated: true, info: REACHED_GOAL };
  return {
    state: moved,
    reward: 0,
    terminated: isHole(lake, next),
    info: next === position ? STAYED : MOVED,
  };
}
