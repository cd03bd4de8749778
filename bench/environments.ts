/**
 * Steps and resets a second of every environment, in process, on one core.
 *
 *     npm run bench:environments [-- FrozenLake]
 *
 * Steps replay recorded random episodes, without and with the text observation after each step. What is computed is
 * timed by this thread's own time, what waits for others by the clock on the wall. For comparison they stand next to the figures of
 * RAGEN's Python environments on this class of machine.
 */

import type { AnyEnvironment } from '../env-server/environments/core/environment.ts';
import { resolveConfig, resolveOptions } from '../env-server/environments/core/settings.ts';
import { createRegistry } from '../env-server/environments/registry.ts';
import type { Json, JsonObject } from '../shared/json.ts';
import { Random } from '../shared/random.ts';

const EPISODES = 200;
const MAX_STEPS = 100;
const WARM_UP_MS = 200;
const MEASURE_MS = 1000;

interface Reference {
  readonly stepsPerSecond: number;
  readonly resetsPerSecond: number;
  readonly note: string;
}

const PYTHON: { readonly [id: string]: Reference } = {
  'Sokoban-v0': {
    stepsPerSecond: 33_000,
    resetsPerSecond: 433,
    note: 'RAGEN without its per-step drawing (580 steps/s with it)',
  },
  'FrozenLake-v0': {
    stepsPerSecond: 33_300,
    resetsPerSecond: 1_740,
    note: 'RAGEN (bare Gymnasium: 172,000 steps/s)',
  },
};

/** Configurations next to the default one. */
const VARIANTS: { readonly [id: string]: readonly JsonObject[] } = {
  'Sokoban-v0': [{ preset: 'simple' }, { preset: 'larger' }],
};

interface Recording {
  readonly start: Json;
  readonly random: Random['state'];
  readonly actions: readonly Json[];
  /** Some of its steps are answered later. */
  readonly waits: boolean;
}

async function record(
  environment: AnyEnvironment,
  config: JsonObject,
  options: JsonObject,
): Promise<Recording[]> {
  const recordings: Recording[] = [];
  for (let seed = 0; seed < EPISODES; seed++) {
    const random = Random.fromSeed(seed);
    const pick = Random.fromSeed(seed + EPISODES);
    let state = await environment.reset(config, random, options);
    const recording = { start: state, random: random.state, actions: [] as Json[], waits: false };
    while (recording.actions.length < MAX_STEPS) {
      const action = await randomAction(environment, state, pick);
      recording.actions.push(action);
      const step = environment.step(state, action, random);
      if (step instanceof Promise) recording.waits = true;
      const result = await step;
      if (result.terminated || result.truncated) break;
      state = result.state;
    }
    recordings.push(recording);
  }
  return recordings;
}

async function randomAction(environment: AnyEnvironment, state: Json, pick: Random): Promise<Json> {
  const valid = environment.validActions?.(state) ?? [];
  if (valid.length > 0) return pick.choice(valid);
  const space = environment.spec.actionSpace;
  if (space.type === 'Discrete') return (space.start ?? 0) + pick.integer(space.n);
  const [planned] = (await environment.references?.random?.plan(state, 1, pick)) ?? [];
  return planned ?? environment.spec.exampleAction;
}

/** Milliseconds that this thread has computed. */
function computed(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/**
 * Runs `round`, which returns how many things it did, until the time is up; things a second. The clock is the time
 * that this thread computes, so that other programs on the machine do not count; that of the wall for rounds that wait.
 */
async function rate(round: () => number | Promise<number>): Promise<number> {
  const run = async (milliseconds: number) => {
    const begin = performance.now();
    let now = computed;
    let start = now();
    let done = 0;
    let elapsed = 0;
    while (elapsed < milliseconds) {
      const result = round();
      if (typeof result === 'number') done += result;
      else {
        if (now === computed) {
          now = () => performance.now();
          start = begin;
        }
        done += await result;
      }
      elapsed = now() - start;
    }
    return (1000 * done) / elapsed;
  };
  await run(WARM_UP_MS);
  return run(MEASURE_MS);
}

function playRecordings(
  environment: AnyEnvironment,
  recordings: readonly Recording[],
  withText: boolean,
): () => number | Promise<number> {
  let seen = 0;
  if (recordings.some(recording => recording.waits)) {
    return async () => {
      let steps = 0;
      for (const { start, random, actions } of recordings) {
        const rng = Random.fromState(random);
        let state = start;
        for (const action of actions) {
          state = (await environment.step(state, action, rng)).state;
          if (withText) seen += (environment.observe(state, 'text') as string).length;
          steps++;
        }
      }
      return seen < 0 ? 0 : steps;
    };
  }
  return () => {
    let steps = 0;
    for (const { start, random, actions } of recordings) {
      const rng = Random.fromState(random);
      let state = start;
      for (let i = 0; i < actions.length; i++) {
        const result = environment.step(state, actions[i], rng) as { state: Json };
        state = result.state;
        if (withText) seen += flattened(environment.observe(state, 'text') as string);
        steps++;
      }
    }
    return seen < 0 ? 0 : steps;
  };
}

/** Reads a character, so that an engine that joins strings lazily has to do the work here. */
function flattened(text: string): number {
  return text.charCodeAt(text.length - 1);
}

function figure(perSecond: number): string {
  return Math.round(perSecond).toLocaleString('en-US').padStart(12);
}

const wanted = process.argv[2]?.toLowerCase() ?? '';
console.log(
  `${'environment'.padEnd(34)}      steps/s   with text     resets/s   times Python's steps, resets`,
);
for (const environment of createRegistry().list()) {
  const { id } = environment.spec;
  if (!id.toLowerCase().includes(wanted)) continue;
  const options = resolveOptions(environment);
  for (const given of [{}, ...(VARIANTS[id] ?? [])]) {
    const config = resolveConfig(environment, given);
    const recordings = await record(environment, config, options);
    const bare = await rate(playRecordings(environment, recordings, false));
    const text = await rate(playRecordings(environment, recordings, true));
    let seed = 0;
    const resets = await rate(() => {
      const state = environment.reset(config, Random.fromSeed(seed++), options);
      return state instanceof Promise ? state.then(() => 1) : 1;
    });
    const python = PYTHON[id];
    const ratio = python
      ? `   ${(text / python.stepsPerSecond).toFixed(0)}, ${(resets / python.resetsPerSecond).toFixed(0)}  ${python.note}`
      : '';
    const name = `${id} ${Object.keys(given).length > 0 ? JSON.stringify(given) : ''}`;
    console.log(`${name.padEnd(34)} ${figure(bare)} ${figure(text)} ${figure(resets)}${ratio}`);
  }
}
