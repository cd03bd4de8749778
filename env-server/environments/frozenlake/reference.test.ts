import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { atOnce } from '../../../shared/slices.ts';
import { resolveConfig } from '../core/settings.ts';
import { frozenLake } from './frozenlake.ts';
import { bestTurn } from './reference.ts';
import type { FrozenLakeConfig } from './rules.ts';

const lakeOf = (layout: string[], success_rate: number) =>
  frozenLake.reset(resolveConfig(frozenLake, { success_rate }) as FrozenLakeConfig, Random.fromSeed(0), {
    layout,
  });

const plan = (...turn: Parameters<typeof bestTurn>) => atOnce(bestTurn(...turn));

t.test('without slipping a turn goes as far towards the goal as it may', async t => {
  const { lake, position } = lakeOf(['P__G'], 1);
  t.same(plan(lake, position, 3, 1), ['Right', 'Right', 'Right']);
  t.same(plan(lake, position, 2, 2)!.slice(0, 1), ['Right']);
  t.same(plan(lake, lake.goal, 2, 1), [], 'nothing is left to do on the goal');
});

t.test('with turns to spare it looks after every risky move, with none to spare it does not', async t => {
  const { lake } = lakeOf(['P__', 'OO_', 'OOG'], 0.5);
  const corner = 2;
  t.not(plan(lake, corner, 2, 30)!.join(' '), 'Down Down', 'which may slip left and then fall in');
  t.same(plan(lake, corner, 2, 1), ['Down', 'Down']);
});

t.test('a turn of more than three moves goes to a goal that is farther away, slippery or not', async t => {
  for (const success_rate of [1, 0.8]) {
    const state = lakeOf(['P____G'], success_rate);
    const { optimal } = frozenLake.references;
    t.same(await optimal.plan(state, 6, undefined, 1), Array(5).fill('Right'));
    t.same((await optimal.plan(state, 4, undefined, 1)).length, 4, 'as far as it may');
  }
});

t.test('five turns of at most two moves reach the goal of a random lake in 94 of 100 episodes', async t => {
  const config = resolveConfig(frozenLake, {}) as FrozenLakeConfig;
  const episodes = 600;
  let wins = 0;
  for (let seed = 0; seed < episodes; seed++) {
    const rng = Random.fromSeed(seed);
    let state = frozenLake.reset(config, rng, {});
    let over = false;
    for (let turns = 5; turns > 0 && !over; turns--) {
      for (const action of await frozenLake.references.optimal.plan(state, 2, rng, turns)) {
        const result = frozenLake.step(state, action, rng);
        state = result.state;
        over = result.terminated;
        if (over) {
          if (result.info.success) wins++;
          break;
        }
      }
    }
  }
  t.ok(Math.abs(wins / episodes - 0.945) < 0.03, `${wins / episodes}`);
});
