import { similar } from '../../shared/text.ts';
import { bandit } from './bandit/bandit.ts';
import type { AnyEnvironment } from './core/environment.ts';
import { ENVIRONMENT_ID } from './core/environment.ts';
import { countdown } from './countdown/countdown.ts';
import { deepCoder } from './deepcoder/deepcoder.ts';
import { frozenLake } from './frozenlake/frozenlake.ts';
import { game2048 } from './game2048/game2048.ts';
import { lean, leanV0 } from './lean/lean.ts';
import { mathWordProblems } from './mathwordproblems/mathwordproblems.ts';
import { rubiksCube } from './rubikscube/rubikscube.ts';
import { searchQa } from './searchqa/searchqa.ts';
import { sokoban } from './sokoban/sokoban.ts';
import { spatial } from './spatial/spatial.ts';
import { staticQa } from './staticqa/staticqa.ts';
import { sudoku } from './sudoku/sudoku.ts';
import { textHousehold } from './texthousehold/texthousehold.ts';
import { textShop } from './textshop/textshop.ts';

/** The built-in environments in listing order; of several versions the newest first. */
export const BUILT_IN: readonly AnyEnvironment[] = [
  sokoban,
  frozenLake,
  bandit,
  countdown,
  sudoku,
  game2048,
  rubiksCube,
  mathWordProblems,
  staticQa,
  spatial,
  textHousehold,
  searchQa,
  textShop,
  lean,
  leanV0,
  deepCoder,
];

const MAX_SUGGESTIONS = 3;

export interface Registry {
  /**
   * Built-in ones first, in their order, then the others by id: the same order in every process, at any time.
   * @param after only those after this id, even where it has been removed
   */
  list(after?: string): readonly AnyEnvironment[];
  /** @throws UnknownEnvironment naming similar ids */
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
  /**
   * Like {@link remove}, for an environment that stays registered: requests for it get an error with the reason.
   * @throws Error for a built-in
   */
  disable(id: string): void;
}

export class UnknownEnvironment extends Error {
  readonly id: string;
  readonly suggestions: readonly string[];
  /** @param isDisabled it is registered, but cannot be built */
  constructor(id: string, suggestions: readonly string[], isDisabled = false) {
    const hint =
      suggestions.length > 0
        ? `did you mean ${suggestions.join(', ')}?`
        : 'GET /v1/envs lists those there are';
    const disabled = `${id} is registered but cannot be made any more; its owner may replace or remove it`;
    super(isDisabled ? disabled : `there is no environment ${JSON.stringify(id)}; ${hint}`);
    this.name = 'UnknownEnvironment';
    this.id = id;
    this.suggestions = suggestions;
  }
}

export function createRegistry(builtIn: readonly AnyEnvironment[] = BUILT_IN): Registry {
  const environments = new Map(builtIn.map(environment => [environment.spec.id, environment]));
  const aliases = new Map(builtIn.flatMap(environment => aliasesOf(environment)));
  const disabled = new Set<string>();
  const fixed = new Map([...environments.keys()].map((id, index) => [id, index]));
  const order = (id: string): number => fixed.get(id) ?? fixed.size;
  const comesAfter = (id: string, other: string): boolean =>
    order(id) > order(other) || (order(id) === order(other) && id > other);
  const refuseBuiltIn = (id: string): void => {
    if (fixed.has(id) || aliases.has(id))
      throw new Error(`${id} is built in and can be neither replaced nor removed`);
  };
  return {
    list(after) {
      const isListed = after === undefined ? () => true : (id: string) => comesAfter(id, after);
      return [...environments.keys()]
        .filter(isListed)
        .sort((a, b) => order(a) - order(b) || (a < b ? -1 : 1))
        .map(id => environments.get(id)!);
    },
    find: id => environments.get(id) ?? aliases.get(id),
    get(id) {
      const environment = environments.get(id) ?? aliases.get(id);
      if (disabled.has(id)) throw new UnknownEnvironment(id, [], true);
      if (!environment)
        throw new UnknownEnvironment(id, closest(id, [...environments.keys(), ...aliases.keys()]));
      return environment;
    },
    isBuiltIn: id => fixed.has(id) || aliases.has(id),
    register(environment) {
      const { id } = environment.spec;
      if (!ENVIRONMENT_ID.test(id)) {
        throw new Error(`an environment id reads [namespace/]Name-vN, got ${JSON.stringify(id)}`);
      }
      refuseBuiltIn(id);
      disabled.delete(id);
      environments.set(id, environment);
    },
    remove(id) {
      refuseBuiltIn(id);
      disabled.delete(id);
      return environments.delete(id);
    },
    disable(id) {
      refuseBuiltIn(id);
      environments.delete(id);
      disabled.add(id);
    },
  };
}

/** The environment under each of its other ids, so that sessions and documents show the requested id. */
function aliasesOf(environment: AnyEnvironment): [string, AnyEnvironment][] {
  const { aliases = [], ...spec } = environment.spec;
  return aliases.map(id => [id, { ...environment, spec: { ...spec, id } }]);
}

/** Environments with similar names, compared without namespace and version. */
function closest(id: string, known: readonly string[]): string[] {
  const names = known.map(bareName);
  const near = similar(bareName(id), [...new Set(names)]);
  return near.flatMap(name => known.filter((_, i) => names[i] === name)).slice(0, MAX_SUGGESTIONS);
}

const bareName = (id: string): string => id.replace(/^.*\//, '').replace(/-v\d+$/, '');
