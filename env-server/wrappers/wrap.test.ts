import t from 'tap';
import type { Json } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';
import { checkContract } from '../../test/environment-contract.test-data.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import { frozenLake } from '../environments/frozenlake/frozenlake.ts';
import { sokoban } from '../environments/sokoban/sokoban.ts';
import { WRAPPERS, type WrapperChoice, wrap } from './wrap.ts';
import { begin } from './wrapped.test-data.ts';

/** One choice of every wrapper. */
const CHOICES: readonly WrapperChoice[] = [
  { name: 'time_limit', options: { max_steps: 6 } },
  { name: 'sticky_actions' },
  { name: 'random_actions' },
  { name: 'reward_scale', options: { factor: 2 } },
  { name: 'reward_clip' },
  { name: 'step_penalty' },
  { name: 'observation_format', options: { format: 'coord' } },
  { name: 'history' },
  { name: 'observe_valid_actions' },
  { name: 'auto_reset' },
  { name: 'record' },
  { name: 'action_text' },
];

t.test('every wrapper keeps the contract', async t => {
  t.same(CHOICES.map(choice => choice.name).sort(), [...WRAPPERS.keys()].sort());
  for (const choice of CHOICES) {
    await t.test(choice.name, async t =>
      checkContract(t, wrap(frozenLake as AnyEnvironment, [choice]), { episodes: 1, steps: 20 }),
    );
  }
});

t.test('wrappers combine in any order', async t => {
  const rng = Random.fromSeed(8);
  for (let trial = 0; trial < 16; trial++) {
    const ordered = rng.shuffle(CHOICES).slice(0, 3 + rng.integer(CHOICES.length - 2));
    const environment = wrap((trial % 2 ? sokoban : frozenLake) as AnyEnvironment, ordered);
    await t.test(ordered.map(choice => choice.name).join(' '), async t =>
      checkContract(t, environment, { configs: [{}], episodes: 1, steps: 12 }),
    );
  }
});

t.test('the order given is the order applied', async t => {
  const scale = { name: 'reward_scale', options: { factor: 10 } };
  const penalty = { name: 'step_penalty', options: { penalty: 1 } };
  t.equal((await (await begin([scale, penalty])).step('Up')).reward, -1);
  t.equal((await (await begin([penalty, scale])).step('Up')).reward, -10);
});

t.test('a snapshot taken anywhere has the same future', async t => {
  const wrappers = CHOICES.filter(choice => choice.name !== 'action_text');
  const play = await begin(wrappers, { config: {}, options: {} });
  const pick = Random.fromSeed(2);
  for (let i = 0; i < 20; i++) await play.step(1 + pick.integer(4));
  const [state, random] = JSON.parse(JSON.stringify([play.state, play.rng.state]));
  const twin = Random.fromState(random);
  let at: Json = state;
  for (let i = 0; i < 20; i++) {
    const action = 1 + pick.integer(4);
    const wanted = await play.step(action);
    const found = await play.environment.step(at, action, twin);
    t.same(found, wanted);
    at = found.state;
  }
});

t.test('wrong wrappers and options are refused with a pointer', async t => {
  const refused = (choice: WrapperChoice, pointer: string) =>
    t.throws(() => wrap(frozenLake as AnyEnvironment, [{ name: 'history' }, choice]), {
      code: 'invalid_request',
      violations: [{ pointer }],
    });
  refused({ name: 'histroy' }, '/wrappers/1/name');
  refused({ name: 'history', options: { turns: 0 } }, '/wrappers/1/options/turns');
  refused({ name: 'history', options: { turn: 1 } }, '/wrappers/1/options/turn');
  refused({ name: 'reward_scale' }, '/wrappers/1/options');
});
