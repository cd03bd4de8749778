import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { checkContract } from '../../../test/environment-contract.test-data.ts';
import { golden } from '../../../test/golden.test-data.ts';
import type { ObservationFormat } from '../core/environment.ts';
import { resolveConfig, resolveOptions } from '../core/settings.ts';
import { splitOf } from '../core/splits.ts';
import { frozenLake, holesOf } from './frozenlake.ts';
import {
  ACTIONS,
  type FrozenLakeConfig,
  type FrozenLakeState,
  groundKey,
  isOver,
  isReachable,
  type Lake,
  slipRate,
} from './rules.ts';

const FORMS: ObservationFormat[] = ['grid', 'coord', 'grid_coord'];

function start(config: JsonObject, options: JsonObject, seed = 1): FrozenLakeState {
  const resolved = resolveConfig(frozenLake, config) as FrozenLakeConfig;
  return frozenLake.reset(resolved, Random.fromSeed(seed), resolveOptions(frozenLake, options));
}

function step(state: FrozenLakeState, action: string | number, rng = Random.fromSeed(1)) {
  return frozenLake.step(state, action, rng);
}

/**
 * Possible outcomes of an action: Gymnasium's `P[s][a]`, in its order (direction − 1, direction, direction + 1). One
 * outcome when nothing slips or the episode is over. Each is a step with a draw from the middle of its share.
 */
function outcomes(lake: Lake, position: number, direction: number) {
  const [slip, rate] = [slipRate(lake), lake.success_rate];
  const isSure = rate === 1 || isOver(lake, position);
  const draws = isSure
    ? [[1, 0.5]]
    : [
        [slip, slip / 2],
        [rate, 0.5],
        [slip, 1 - slip / 2],
      ];
  return draws.map(([probability, uniform]) => {
    const rng = Object.assign(Random.fromSeed(1), { float: () => uniform });
    const taken = frozenLake.step({ lake, position, steps: 0 }, ACTIONS.names[direction], rng);
    const { state, reward, terminated } = taken;
    return { probability, position: state.position, reward, terminated };
  });
}

interface Deterministic {
  transitions: {
    map: string[];
    state: number;
    action: string;
    obs_before: Record<string, string>;
    next_state: number;
    reward: number;
    done: boolean;
    info: JsonObject;
    obs_after: Record<string, string>;
  }[];
}

t.test('deterministic transitions are the golden ones, in every form', async t => {
  for (const row of golden<Deterministic>('frozenlake_deterministic_transitions.json').transitions) {
    const size = row.map.length;
    const before = start(
      { success_rate: 1 },
      { layout: row.map, player: [Math.floor(row.state / size), row.state % size] },
    );
    const { state, reward, terminated, info: ours } = step(before, row.action);
    // RAGEN says nothing of why an episode ends.
    const { ended_by, ...info } = ours;
    const end = state.position === state.lake.goal ? 'goal' : 'hole';
    t.equal(ended_by, terminated ? end : undefined);
    const seen = (s: FrozenLakeState) =>
      Object.fromEntries(FORMS.map(form => [form, frozenLake.observe(s, form)]));
    t.same(
      [seen(before), state.position, reward, terminated, info, seen(state)],
      [row.obs_before, row.next_state, row.reward, row.done, row.info, row.obs_after],
    );
  }
});

interface Tables {
  tables: {
    map: string[];
    is_slippery: boolean;
    success_rate: number | null;
    P: Record<string, Record<string, [number, number, number, boolean][]>>;
  }[];
}

t.test('transition tables are the golden ones', async t => {
  for (const table of golden<Tables>('frozenlake_transition_tables.json').tables) {
    const { lake } = start(
      { success_rate: table.is_slippery ? table.success_rate : 1 },
      { layout: table.map },
    );
    for (const [position, actions] of Object.entries(table.P)) {
      for (const [direction, rows] of Object.entries(actions)) {
        t.same(
          outcomes(lake, Number(position), Number(direction)).map(o => [
            o.probability,
            o.position,
            o.reward,
            o.terminated,
          ]),
          rows,
        );
      }
    }
  }
});

interface Distributions {
  transitions: {
    map: string[];
    success_rate: number;
    state: number;
    action: string;
    outcomes: { next_state: number; reward: number; done: boolean; prob: number }[];
  }[];
}

t.test('outcome distributions are the golden ones, and steps are drawn from them', async t => {
  const rows = golden<Distributions>('frozenlake_slippery_distributions.json').transitions;
  const rng = Random.fromSeed(5);
  for (const [index, row] of rows.entries()) {
    const size = row.map.length;
    const options = { layout: row.map, player: [Math.floor(row.state / size), row.state % size] };
    const state = start({ success_rate: row.success_rate }, options);
    const probability = new Map<number, number>();
    for (const outcome of outcomes(state.lake, state.position, ACTIONS.indexOf(row.action))) {
      probability.set(outcome.position, (probability.get(outcome.position) ?? 0) + outcome.probability);
    }
    t.equal(probability.size, row.outcomes.length);
    for (const wanted of row.outcomes) {
      t.ok(Math.abs(probability.get(wanted.next_state)! - wanted.prob) < 1e-12);
    }
    if (index % 20 !== 0) continue;
    const draws = 4000;
    const counts = new Map<number, number>();
    for (let i = 0; i < draws; i++) {
      const { position } = step(state, row.action, rng).state;
      counts.set(position, (counts.get(position) ?? 0) + 1);
    }
    for (const wanted of row.outcomes) {
      const share = counts.get(wanted.next_state)! / draws;
      t.ok(Math.abs(share - wanted.prob) < 0.035, `${share} of ${wanted.prob}`);
    }
  }
});

t.test('random lakes: reachable, start and goal anywhere, as many holes as the golden statistic', async t => {
  const statistic = golden<{ stats: { mean_holes_per_4x4_map: number } }>('frozenlake_seed_maps.json').stats;
  const lakes = Array.from({ length: 3000 }, (_, seed) => start({}, {}, seed).lake);
  t.ok(lakes.every(isReachable));
  t.equal(new Set(lakes.map(lake => lake.start)).size, 16);
  t.equal(new Set(lakes.map(lake => lake.goal)).size, 16);
  const mean = lakes.reduce((sum, lake) => sum + holesOf(lake).length, 0) / lakes.length;
  t.ok(Math.abs(mean - statistic.mean_holes_per_4x4_map) < 0.08, `mean holes ${mean}`);
});

t.test('the same seed makes the same lake', async t => {
  t.same(start({}, {}, 10000), start({}, {}, 10000));
  t.notSame(start({}, {}, 10000), start({}, {}, 10001));
});

t.test('actions are ids from 1 or names in any case; anything else changes nothing', async t => {
  const state = start({ success_rate: 1 }, { layout: ['P__', '__G'] });
  for (const right of [3, 'Right', 'right', ' RIGHT ']) t.equal(step(state, right).state.position, 1);
  for (const wrong of [0, 5, 1.5, '3', 'Jump', '']) {
    const { state: after, reward, terminated, info } = step(state, wrong);
    t.equal(after, state);
    t.same([reward, terminated], [0, false]);
    t.same(info, { success: false, action_is_valid: false, action_is_effective: false });
  }
});

t.test('a custom vocabulary reaches observation, legend, vocabulary and layouts', async t => {
  const symbols = { player: '🧍', hole: 'pit', goal: '*' };
  const state = start({ symbols }, { layout: '🧍__\n_H*' });
  t.equal(frozenLake.observe(state, 'text'), '🧍__\n_pit*');
  const described = frozenLake.describe(resolveConfig(frozenLake, { symbols }) as FrozenLakeConfig);
  t.same(described.legend?.find(entry => entry.meaning === 'hole')?.symbol, 'pit');
  t.ok(described.vocabulary?.includes('pit'));
  t.throws(
    () => resolveConfig(frozenLake, { symbols: { hole: '_' } }),
    /frozen and hole have the same symbol/,
  );
});

t.test('the configuration chooses the text form', async t => {
  const state = start({ preset: 'grid_coord' }, { layout: ['PG'] });
  t.equal(frozenLake.observe(state, 'text'), frozenLake.observe(state, 'grid_coord'));
});

t.test('levels that are none are refused with a pointer', async t => {
  const refused = (options: JsonObject, pointer: string) =>
    t.throws(() => start({}, options), { name: 'InvalidOptions', pointer }, JSON.stringify(options));
  refused({ layout: ['P_', '_'] }, '/layout/1');
  refused({ layout: ['P?', '_G'] }, '/layout');
  refused({ layout: ['PP', '_G'] }, '/layout');
  refused({ layout: ['P_', '__'] }, '/layout');
  refused({ layout: ['PO', '_G'], start: [0, 1] }, '/start');
  refused({ layout: ['P_', '_G'], start: [2, 0] }, '/start');
  refused({ layout: ['PO', '_G'], player: [0, 1] }, '/player');
  refused({ start: [1, 1], goal: [1, 1] }, '/goal');
  refused({ lake: 1 }, '/lake');
});

t.test('lakes of a split are of that split', async t => {
  for (const split of ['train', 'validation', 'test'] as const) {
    for (let seed = 0; seed < 100; seed++)
      t.equal(splitOf(groundKey(start({ split }, {}, seed).lake)), split);
  }
});

t.test('start and goal can be pinned on a random lake', async t => {
  const { lake } = start({}, { start: [0, 3], goal: [2, 1] });
  t.same([lake.start, lake.goal], [3, 9]);
});

/** Success of a policy that plans one action at a time, over random lakes. */
async function success(policy: 'optimal' | 'random', config: JsonObject, episodes: number): Promise<number> {
  let wins = 0;
  for (let seed = 0; seed < episodes; seed++) {
    const rng = Random.fromSeed(seed);
    const resolved = resolveConfig(frozenLake, config) as FrozenLakeConfig;
    let state = frozenLake.reset(resolved, rng, {});
    for (let i = 0; i < resolved.max_steps; i++) {
      const [action] = await frozenLake.references[policy].plan(state, 1, rng);
      const result = await frozenLake.step(state, action, rng);
      state = result.state;
      if (result.terminated) {
        if (result.info.success) wins++;
        break;
      }
    }
  }
  return wins / episodes;
}

t.test('within ten actions the optimum wins about 94 % and random actions about 25 %', async t => {
  const best = await success('optimal', { max_steps: 10 }, 1500);
  t.ok(Math.abs(best - 0.945) < 0.025, `optimal ${best}`);
  const chance = await success('random', { max_steps: 10 }, 1500);
  t.ok(Math.abs(chance - 0.25) < 0.05, `random ${chance}`);
});

t.test('plans on ice that does not slip lead to the goal the shortest way', async t => {
  const state = start({ success_rate: 1 }, { layout: ['P_O', '___', 'O_G'] });
  const plan = await frozenLake.references.optimal.plan(state, 10);
  t.equal(plan.length, 4);
  let at = state;
  for (const action of plan) at = step(at, action as string).state;
  t.equal(frozenLake.observe(at, 'grid'), '__O\n___\nO_√');
  t.same(await frozenLake.references.optimal.plan(at, 10), []);
});

t.test('keeps the contract', async t => checkContract(t, frozenLake));
