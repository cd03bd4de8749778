import t from 'tap';
import type { Json } from '../../shared/json.ts';
import type { AnyEnvironment, Transition } from '../environments/core/environment.ts';
import { countdown } from '../environments/countdown/countdown.ts';
import { frozenLake } from '../environments/frozenlake/frozenlake.ts';
import { sokoban } from '../environments/sokoban/sokoban.ts';
import { begin } from './wrapped.test-data.ts';

const WRAPPERS = [{ name: 'action_text' }];

t.test('does the actions of the answer in order and adds up their rewards', async t => {
  const play = await begin(WRAPPERS);
  const { reward, terminated, info } = await play.step('<think>go</think><answer>Right || right</answer>');
  t.same([reward, terminated], [0, false]);
  t.match(info, { actions: [3, 3], format_penalty: 0, action_is_valid: true, action_is_effective: true });
  t.equal(play.see(), '__PG\nO___');
});

t.test('stops where the episode ends', async t => {
  const play = await begin(WRAPPERS);
  const { reward, terminated, info } = await play.step('<think></think><answer>Down||Right||Right</answer>');
  t.same([reward, terminated, info.actions], [0, true, [2]]);
});

t.test('actions beyond the limit are dropped without a penalty', async t => {
  const play = await begin([{ name: 'action_text', options: { max_actions: 1 } }]);
  t.match((await play.step('<think></think><answer>Right||Jump</answer>')).info, {
    actions: [3],
    format_penalty: 0,
  });
});

t.test('unknown actions and missing tags cost the format penalty, once', async t => {
  const play = await begin(WRAPPERS);
  for (const [text, actions] of [
    ['<think></think><answer>Jump || Up || Fly</answer>', [4]],
    ['<think></think><answer></answer>', []],
    ['<answer>Up</answer>', []],
    ['Up', []],
    [7, []],
  ] as const) {
    const { reward, info } = await play.step(text);
    t.equal(reward, -0.1);
    t.match(info, { actions, format_penalty: -0.1, action_is_valid: false, success: false });
  }
  const bare = await begin([{ name: 'action_text', options: { think: false, format_penalty: -0.5 } }]);
  t.equal((await bare.step('<answer>Up</answer>')).reward, 0);
  t.equal((await bare.step('Up')).reward, -0.5);
});

t.test('the limit of the episode counts actions', async t => {
  const play = await begin(WRAPPERS, { config: { success_rate: 1, max_steps: 3 } });
  const first = await play.step('<think></think><answer>Up||Up</answer>');
  t.equal(first.truncated, false);
  t.notOk('ended_by' in first.info);
  t.match(await play.step('<think></think><answer>Up||Up</answer>'), {
    truncated: true,
    info: { actions: [4], ended_by: 'time_limit' },
  });
});

t.test('text environments get the answer as written', async t => {
  const environment = countdown as AnyEnvironment;
  const play = await begin(WRAPPERS, { environment, config: {}, options: { nums: [2, 3], target: 6 } });
  t.match(await play.step('<think></think><answer>2 * 3</answer>'), { reward: 1, terminated: true });
});

t.test('valid actions are listed as answers, so that other wrappers can draw and show them', async t => {
  const play = await begin([
    { name: 'action_text' },
    { name: 'random_actions', options: { probability: 1 } },
    { name: 'observe_valid_actions' },
  ]);
  t.match(play.see(), /Valid actions: <think><\/think><answer>Left<\/answer>, /);
  const { info } = await play.step('nothing');
  t.match(info.executed_action, /^<think><\/think><answer>(Left|Down|Right|Up)<\/answer>$/);
  t.equal(info.action_is_valid, true);
});

t.test('reference policies answer in text', async t => {
  const play = await begin(WRAPPERS, {
    environment: sokoban as AnyEnvironment,
    config: { preset: 'simple', min_solution: 6 },
    options: {},
  });
  const turns = await play.environment.references!.optimal.plan(play.state, 3, play.rng);
  t.match(turns[0], /^<think><\/think><answer>(\w+ \|\| ){4}\w+<\/answer>$/);
  let last = await play.step(turns[0]);
  for (const turn of turns.slice(1)) last = await play.step(turn);
  t.equal(last.info.success, true);
});

t.test('reward components of the actions are added up like their rewards', async t => {
  const environment: AnyEnvironment = {
    ...(frozenLake as AnyEnvironment),
    step: (state, action, rng) => {
      const step = frozenLake.step(state as never, action, rng);
      const rewards = { moves: 1, ...(step.reward > 0 && { arrived: 0.5 }) };
      return { ...step, info: { ...step.info, rewards } } as unknown as Transition<Json>;
    },
  };
  const play = await begin(WRAPPERS, { environment });
  const far = await play.step('<think></think><answer>Right||Right</answer>');
  t.same(far.info.rewards, { moves: 2 });
  const there = await play.step('<think></think><answer>Right</answer>');
  t.same(there.info.rewards, { moves: 1, arrived: 0.5 });
});
