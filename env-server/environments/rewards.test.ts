import t from 'tap';
import type { Json, JsonObject } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';
import type { AnyEnvironment, StepInfo } from './core/environment.ts';
import { resolveConfig, resolveOptions } from './core/settings.ts';
import { deepCoder, stopSandboxes } from './deepcoder/deepcoder.ts';
import { BUILT_IN } from './registry.ts';

t.setTimeout(300_000);

/** No episode without success may return as much as one with success: else a policy learns not to finish. */

t.teardown(stopSandboxes);

const SEEDS = [0, 1, 2];
/** Seeds of environments that pay by chance. */
const CHANCES = Array.from({ length: 64 }, (_, seed) => seed);
const MAX_STEPS = 100;
const MORE_STEPS: { readonly [id: string]: number } = { 'Game2048-v0': 400, 'Sudoku-v0': 200 };
/** Levels that the players of this test come to the end of. */
const CONFIGS: { readonly [id: string]: JsonObject } = {
  'Game2048-v0': { preset: 'small' },
  'Sudoku-v0': { size: 9, difficulty: 'hard' },
};
/** Valid actions that loops and the greedy player try in a state. */
const MAX_ACTIONS = 12;
/** Success pays by chance, and its mean counts. */
const BY_CHANCE = new Set(['Bandit-v0']);
/** Rules that others set and that are kept as they are; their pages say so. */
const KEPT = new Set(['Lean-v0']);
/** Answers that parse somewhere and solve nothing, next to those that an environment names. */
const NO_OPS: readonly Json[] = ['', 'nonsense', 'look', 'have k : True := trivial', 'r1 c1', 1, 2, 3, 4];

type Chooser = (state: Json, step: number, rng: Random) => Json | undefined | Promise<Json | undefined>;

interface Played {
  readonly success: boolean;
  readonly returned: number;
}

async function begin(environment: AnyEnvironment, seed: number) {
  const rng = Random.fromSeed(seed);
  const state = await environment.reset(
    resolveConfig(environment, CONFIGS[environment.spec.id] ?? {}),
    rng,
    resolveOptions(environment),
  );
  return { rng, state };
}

/** An episode, ended where the player has no action. */
async function play(environment: AnyEnvironment, seed: number, choose: Chooser): Promise<Played> {
  const { rng, state: first } = await begin(environment, seed);
  const own = Random.fromSeed(seed + 1000);
  let state = first;
  let returned = 0;
  let success = false;
  const most = MORE_STEPS[environment.spec.id] ?? MAX_STEPS;
  for (let step = 0; step < most; step++) {
    const action = await choose(state, step, own);
    if (action === undefined) break;
    const result = await environment.step(state, action, rng);
    returned += result.reward;
    success = result.info.success === true;
    state = result.state;
    if (result.terminated || result.truncated) break;
  }
  return { success, returned };
}

/** Takes the action that pays most now and does not succeed. */
const greedy =
  (environment: AnyEnvironment): Chooser =>
  async (state, _step, rng) => {
    let best: { action: Json; reward: number } | undefined;
    for (const action of actionsOf(environment, state, rng)) {
      const { reward, info, terminated } = await environment.step(state, action, Random.fromState(rng.state));
      if (info.success || (terminated && best)) continue;
      if (!best || reward > best.reward) best = { action, reward };
    }
    return best?.action;
  };

function actionsOf(environment: AnyEnvironment, state: Json, rng: Random): Json[] {
  const valid = rng.shuffle([...(environment.validActions?.(state) ?? [])]);
  return [...valid.slice(0, MAX_ACTIONS), ...named(environment)];
}

function named({ spec }: AnyEnvironment): Json[] {
  const { actionSpace } = spec;
  const names = 'labels' in actionSpace && Array.isArray(actionSpace.labels) ? actionSpace.labels : [];
  return [...(names as Json[]), spec.exampleAction, ...NO_OPS];
}

/** Ways to play without an end: one action for ever, two in turn, at random, and greedily. */
async function wanderers(environment: AnyEnvironment, seed: number): Promise<Chooser[]> {
  const { state } = await begin(environment, seed);
  const actions = actionsOf(environment, state, Random.fromSeed(seed));
  const random = environment.references?.random;
  const isLong = environment.spec.maxEpisodeSteps !== 1;
  const turns = (isLong ? actions.slice(0, MAX_ACTIONS) : []).flatMap((a, i) =>
    actions.slice(i + 1, i + 3).map(b => [a, b]),
  );
  return [
    ...actions.map(
      (action): Chooser =>
        () =>
          action,
    ),
    ...turns.map(
      (pair): Chooser =>
        (_state, step) =>
          pair[step % 2],
    ),
    async (now, _step, rng) => (await random?.plan(now, 1, rng))?.[0],
    greedy(environment),
  ];
}

async function successes(environment: AnyEnvironment): Promise<number[]> {
  const found: number[] = [];
  const { random: _, ...experts } = environment.references ?? {};
  for (const seed of BY_CHANCE.has(environment.spec.id) ? CHANCES : SEEDS) {
    for (const { plan } of Object.values(experts)) {
      const { success, returned } = await play(
        environment,
        seed,
        async (state, _step, rng) => (await plan(state, 1, rng))[0],
      );
      if (success || BY_CHANCE.has(environment.spec.id)) found.push(returned);
    }
  }
  return found;
}

/** The most that an episode without success returned. */
async function bestWithoutSuccess(environment: AnyEnvironment): Promise<number> {
  let best = Number.NEGATIVE_INFINITY;
  // A program takes a process for each of its tests.
  for (const seed of environment.spec.id === deepCoder.spec.id ? SEEDS.slice(0, 1) : SEEDS) {
    for (const choose of await wanderers(environment, seed)) {
      const { success, returned } = await play(environment, seed, choose);
      if (!success) best = Math.max(best, returned);
    }
  }
  return best;
}

for (const environment of BUILT_IN) {
  const { id } = environment.spec;
  t.test(`${id} pays less for every episode without success`, async t => {
    if (environment === (deepCoder as AnyEnvironment)) {
      const condition = await deepCoder.condition();
      if (!condition.isolated) return t.comment(`skipped: ${condition.summary}`);
    }
    const best = await bestWithoutSuccess(environment);
    const found = await successes(environment);
    t.ok(found.length > 0, 'an expert succeeds');
    const least = BY_CHANCE.has(id) ? mean(found) : Math.min(...found);
    if (KEPT.has(id)) t.ok(best > least, `${best} without success, ${least} with it: a rule that is kept`);
    else t.ok(best < least, `${best} without success, ${least} with it`);
    return undefined;
  });
}

/** Environments that name parts of their rewards: the names, and whether the parts add up to the reward. */
const PARTS: { readonly [id: string]: { readonly names: readonly string[]; readonly addUp: boolean } } = {
  'Game2048-v0': { names: ['merges', 'doubled', 'refused'], addUp: false },
  'Countdown-v0': { names: ['correct', 'numbers'], addUp: false },
  'Lean-v0': { names: ['step', 'tactic', 'proof', 'cap'], addUp: true },
  'Lean-v1': { names: ['step', 'tactic', 'proof', 'cap'], addUp: true },
  'SearchQA-v0': { names: ['exact_match', 'f1'], addUp: false },
  'Sokoban-v0': { names: ['moves', 'boxes', 'solved'], addUp: true },
  'Spatial-v0': { names: ['steps', 'answer', 'refused'], addUp: true },
  'Sudoku-v0': { names: ['numbers', 'solved', 'refused'], addUp: true },
  'TextHousehold-v0': { names: ['taken', 'treated', 'placed', 'done'], addUp: false },
  'TextShop-v0': { names: ['product', 'attributes', 'options', 'price'], addUp: false },
};
/** Parts that an environment's version never pays. */
const NEVER_PAID = new Set(['Lean-v1 tactic', 'Lean-v1 cap']);

/** Steps of episodes by each of its players, of invalid actions, and of one more after the end. */
async function stepsOf(environment: AnyEnvironment): Promise<{ reward: number; info: StepInfo }[]> {
  const steps: { reward: number; info: StepInfo }[] = [];
  for (const seed of SEEDS) {
    for (const { plan } of Object.values(environment.references ?? {})) {
      let { state, rng } = await begin(environment, seed);
      const own = Random.fromSeed(seed);
      for (let step = 0; step < MAX_STEPS; step++) {
        const action = step % 3 === 1 ? '' : (await plan(state, 1, own))[0];
        const result = await environment.step(state, action ?? 0, rng);
        steps.push(result);
        state = result.state;
        if (action === undefined) break;
      }
    }
  }
  return steps;
}

t.test('an environment that names parts of its rewards names all of them at every step', async t => {
  for (const environment of BUILT_IN) {
    const { id } = environment.spec;
    if (environment === (deepCoder as AnyEnvironment)) continue;
    const paid = new Set<string>();
    for (const { reward, info } of await stepsOf(environment)) {
      const parts = info.rewards as Readonly<Record<string, number>> | undefined;
      const wanted = PARTS[id];
      if (!(wanted && parts)) {
        if (wanted || parts) t.fail(`${id}: ${JSON.stringify(info)}`);
        continue;
      }
      if (Object.keys(parts).join() !== wanted.names.join()) t.fail(`${id}: ${JSON.stringify(parts)}`);
      const sum = Object.values(parts).reduce((total, part) => total + part, 0);
      if (wanted.addUp && Math.abs(sum - reward) > 1e-9) t.fail(`${id}: ${JSON.stringify(parts)}, ${reward}`);
      for (const name of wanted.names) if (parts[name] !== 0) paid.add(name);
    }
    const expected = (PARTS[id]?.names ?? []).filter(name => !NEVER_PAID.has(`${id} ${name}`));
    t.same([...paid].sort(), expected.sort(), `${id} pays each part at some step`);
  }
});

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
