import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { checkSymbols } from '../core/drawing/grid.ts';
import { type Environment, InvalidConfig, type Transition } from '../core/environment.ts';
import type { SokobanConfig } from './config.ts';
import { createState, levelKey } from './level.ts';
import { observationSpaces, observe } from './observation.ts';
import { optimal, random } from './reference.ts';
import { render } from './render.ts';
import {
  ACTIONS,
  BLOCKED,
  BOX_REWARD,
  countOnTarget,
  MOVED,
  move,
  SOLVED,
  SOLVED_REWARD,
  SOLVED_STANDING,
  type SokobanState,
  STEP_REWARD,
  UNKNOWN_ACTION,
} from './rules.ts';
import { describe, spec } from './spec.ts';

/** Sokoban-v0: the rules and rooms of gym-sokoban and RAGEN. */
export const sokoban = {
  spec,
  describe,

  checkConfig(config: SokobanConfig): void {
    checkSymbols(config.symbols);
    if (config.max_solution !== undefined && config.max_solution < config.min_solution) {
      throw new InvalidConfig('/max_solution', 'max_solution is smaller than min_solution');
    }
  },

  reset(config: SokobanConfig, rng: Random, options: JsonObject): SokobanState | Promise<SokobanState> {
    return createState(config, rng, options);
  },

  levelKey: ({ room, boxes }: SokobanState) => levelKey({ ...room, boxes }),
  step,
  observe,
  observationSpaces,
  render,
  references: { optimal, random },
} satisfies Environment<SokobanConfig, SokobanState>;

function step(state: SokobanState, action: Json): Transition<SokobanState> {
  const { room, boxes_on_target: before } = state;
  const over = before === room.targets;
  const direction = ACTIONS.indexOf(action);
  if (direction < 0) return { state, reward: 0, terminated: over, info: UNKNOWN_ACTION };
  if (over) return { state, reward: 0, terminated: true, info: SOLVED_STANDING };

  const moved = move(state, direction);
  const onTarget = countOnTarget(room, moved.boxes);
  const solved = onTarget === room.targets;
  let reward = STEP_REWARD;
  if (onTarget > before) reward += BOX_REWARD;
  else if (onTarget < before) reward -= BOX_REWARD;
  if (solved) reward += SOLVED_REWARD;
  return {
    state: onTarget === before ? moved : { ...moved, boxes_on_target: onTarget },
    reward,
    terminated: solved,
    info: moved === state ? (solved ? SOLVED_STANDING : BLOCKED) : solved ? SOLVED : MOVED,
  };
}
