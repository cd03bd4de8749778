import { alfworld } from './alfworld/alfworld.ts';
import { bandit } from './bandit/bandit.ts';
import type { AnyEnvironment } from './core/environment.ts';
import { ENVIRONMENT_ID } from './core/environment-id.ts';
import { countdown } from './countdown/countdown.ts';
import { deepCoder } from './deepcoder/deepcoder.ts';
import { frozenLake } from './frozenlake/frozenlake.ts';
import { game2048 } from './game2048/game2048.ts';
import { lean } from './lean/lean.ts';
import { metaMathQa } from './metamathqa/metamathqa.ts';
import { rubiksCube } from './rubikscube/rubikscube.ts';
import { searchQa } from './searchqa/searchqa.ts';
import { sokoban } from './sokoban/sokoban.ts';
import { spatial } from './spatial/spatial.ts';
import { staticQa } from './staticqa/staticqa.ts';
import { sudoku } from './sudoku/sudoku.ts';
import { webshop } from './webshop/webshop.ts';

/** The environments that come with the server, in the order of their listing. */
export const BUILT_IN: readonly AnyEnvironment[] = [
  sokoban,
  frozenLake,
  bandit,
  countdown,
  sudoku,
  game2048,
  rubiksCube,
  metaMathQa,
  staticQa,
  spatial,
  alfworld,
  searchQa,
  webshop,
  lean,
  deepCoder,
];

const MOST_SUGGESTIONS = 3;

export interface Registry {
  list(): readonly AnyEnvironment[];
  /** @throws UnknownEnvironment naming close matches */
  get(id: string): AnyEnvironment;
  find(id: string): AnyEnvironment | undefined;
  isBuiltIn(id: string): boolean;
  /**
   * Adds an environment, or replaces the one of that id.
   * @throws Error for an id that is malformed or a built-in's
   */
  register(environment: AnyEnvironment): void;
  /** Returns whether there was one. @throws Error for a built-in */
  remove(id: string): boolean;
}

export class UnknownEnvironment extends Error {
  readonly id: string;
  readonly suggestions: readonly string[];
  constructor(id: string, suggestions: readonly string[]) {
    super(`there is no environment ${JSON.stringify(id)}; did you mean ${suggestions.join(', ')}?`);
    this.name = 'UnknownEnvironment';
    this.id = id;
    this.suggestions = suggestions;
  }
}

export function createRegistry(builtIn: readonly AnyEnvironment[] = BUILT_IN): Registry {
  const environments = new Map(builtIn.map(environment => [environment.spec.id, environment]));
  const fixed = new Set(environments.keys());
  const refuseBuiltIn = (id: string): void => {
    if (fixed.has(id)) throw new Error(`${id} is built in and can be neither replaced nor removed`);
  };
  return {
    list: () => [...environments.values()],
    find: id => environments.get(id),
    get(id) {
      const environment = environments.get(id);
      if (!environment) throw new UnknownEnvironment(id, closest(id, [...environments.keys()]));
      return environment;
    },
    isBuiltIn: id => fixed.has(id),
    register(environment) {
      const { id } = environment.spec;
      if (!ENVIRONMENT_ID.test(id)) {
        throw new Error(`an environment id reads [namespace/]Name-vN, got ${JSON.stringify(id)}`);
      }
      refuseBuiltIn(id);
      environments.set(id, environment);
    },
    remove(id) {
      refuseBuiltIn(id);
      return environments.delete(id);
    },
  };
}

function closest(id: string, known: readonly string[]): string[] {
  const wanted = id.toLowerCase();
  return known
    .map(name => ({ name, distance: editDistance(wanted, name.toLowerCase()) }))
    .sort((a, b) => a.distance - b.distance)
    .slice(0, MOST_SUGGESTIONS)
    .map(({ name }) => name);
}

/** Levenshtein distance. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length];
}
