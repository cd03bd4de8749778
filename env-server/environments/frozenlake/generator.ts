import type { Random } from '../../../shared/random.ts';
import { cellAt, type Layout, readLayout } from '../core/drawing/grid.ts';
import { InvalidConfig, InvalidOptions } from '../core/environment.ts';
import { isInSplit, symmetricKey } from '../core/splits.ts';
import {
  CLASSIC_MAPS,
  DIRECTIONS,
  FROZEN,
  type FrozenLakeConfig,
  type FrozenLakeOptions,
  HOLE,
  isHole,
  type Lake,
  neighbor,
} from './rules.ts';

/** Random lakes are redrawn until the goal can be reached; a configuration that needs more tries is rejected. */
const MAX_TRIES = 10_000;

/** Symbol of the goal in a level's key. */
const GOAL = 'G';

type LakeGround = Pick<Lake, 'rows' | 'cols' | 'cells' | 'start' | 'goal'>;

/**
 * The lake of an episode and the player's cell.
 * @throws InvalidOptions when the pinned level is not a lake
 */
export function createLake(
  config: FrozenLakeConfig,
  rng: Random,
  options: FrozenLakeOptions,
): { lake: Lake; position: number } {
  const layout = options.layout ?? CLASSIC_MAPS[config.map];
  const ground = layout
    ? pinnedGround(readLayout(layout), config, options)
    : randomGround(config, rng, options);
  const lake: Lake = {
    ...ground,
    success_rate: config.success_rate,
    max_steps: config.max_steps,
    form: config.observation_format,
    symbols: config.symbols,
  };
  if (!options.player) return { lake, position: lake.start };
  const position = cellAt('/player', options.player, lake.rows, lake.cols);
  if (isHole(lake, position) || position === lake.goal) {
    throw new InvalidOptions('/player', 'the player must start on a frozen cell that is not the goal');
  }
  return { lake, position };
}

function pinnedGround(layout: Layout, config: FrozenLakeConfig, options: FrozenLakeOptions): LakeGround {
  const { rows, cols } = layout;
  const { symbols } = config;
  const starts: number[] = [];
  const goals: number[] = [];
  const cells = layout.cells.map((symbol, cell) => {
    if (symbol === symbols.player || symbol === 'S') starts.push(cell);
    else if (symbol === symbols.goal || symbol === 'G') goals.push(cell);
    else if (symbol === symbols.hole || symbol === HOLE) return HOLE;
    else if (symbol !== symbols.frozen && symbol !== FROZEN) {
      throw new InvalidOptions(
        '/layout',
        `unknown symbol ${JSON.stringify(symbol)}; a lake is made of ${symbols.player} ${symbols.frozen} ${symbols.hole} ${symbols.goal} or S F H G`,
      );
    }
    return FROZEN;
  });
  const start = options.start ? cellAt('/start', options.start, rows, cols) : onlyOne('start', starts);
  const goal = options.goal ? cellAt('/goal', options.goal, rows, cols) : onlyOne('goal', goals);
  const ground = { rows, cols, cells: cells.join(''), start, goal };
  refuseBadEnds(ground);
  return ground;
}

function onlyOne(name: string, cells: readonly number[]): number {
  if (cells.length !== 1) {
    throw new InvalidOptions('/layout', `the layout needs exactly one ${name}, it has ${cells.length}`);
  }
  return cells[0];
}

function refuseBadEnds({ cells, start, goal }: LakeGround): void {
  if (start === goal) throw new InvalidOptions('/goal', 'start and goal are the same cell');
  if (cells[start] === HOLE) throw new InvalidOptions('/start', 'the start is a hole');
  if (cells[goal] === HOLE) throw new InvalidOptions('/goal', 'the goal is a hole');
}

/** RAGEN's generator: cells, start and goal are drawn until a path over ice joins the two. */
function randomGround(config: FrozenLakeConfig, rng: Random, options: FrozenLakeOptions): LakeGround {
  const { size } = config;
  const area = size * size;
  const pinnedStart = options.start && cellAt('/start', options.start, size, size);
  const pinnedGoal = options.goal && cellAt('/goal', options.goal, size, size);
  if (pinnedStart !== undefined && pinnedStart === pinnedGoal) {
    throw new InvalidOptions('/goal', 'start and goal are the same cell');
  }
  for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
    const drawn: string[] = [];
    while (drawn.length < area) drawn.push(rng.chance(config.p_frozen) ? FROZEN : HOLE);
    let start = pinnedStart ?? rng.integer(area);
    let goal = pinnedGoal ?? rng.integer(area);
    while (start === goal) {
      if (pinnedStart === undefined) start = rng.integer(area);
      if (pinnedGoal === undefined) goal = rng.integer(area);
    }
    drawn[start] = FROZEN;
    drawn[goal] = FROZEN;
    const ground = { rows: size, cols: size, cells: drawn.join(''), start, goal };
    if (isReachable(ground) && isInSplit(() => groundKey(ground), config.split)) return ground;
  }
  throw new InvalidConfig(
    '/p_frozen',
    `found no ${size} × ${size} lake with a reachable goal ${config.split === 'any' ? '' : `of the split ${config.split} `}in ${MAX_TRIES} tries; raise p_frozen or size`,
  );
}

/** Level identity of a lake: holes and goal up to the symmetries of the board; the start does not matter. */
export function groundKey({ rows, cols, cells, goal }: Omit<LakeGround, 'start'>): string {
  const symbols = cells.split('');
  symbols[goal] = GOAL;
  return symmetricKey(rows, cols, symbols);
}

export function isReachable(lake: LakeGround): boolean {
  const seen = new Uint8Array(lake.rows * lake.cols);
  const frontier = [lake.start];
  seen[lake.start] = 1;
  while (frontier.length > 0) {
    const cell = frontier.pop()!;
    if (cell === lake.goal) return true;
    for (let direction = 0; direction < DIRECTIONS; direction++) {
      const next = neighbor(lake, cell, direction);
      if (!seen[next] && !isHole(lake, next)) {
        seen[next] = 1;
        frontier.push(next);
      }
    }
  }
  return false;
}
