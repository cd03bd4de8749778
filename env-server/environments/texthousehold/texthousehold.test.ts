import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { splitOf } from '../core/splits.ts';
import { admissible, canonical } from './actions.ts';
import { isWon, RECEPTACLES, ROOMS, TASK_TYPES, THINGS, taskText } from './household.ts';
import { textHousehold } from './texthousehold.ts';

const play = playing(textHousehold);

const KITCHEN: JsonObject = {
  room: 'kitchen',
  receptacles: ['countertop 1', 'fridge 1', 'microwave 1', 'sinkbasin 1', 'drawer 1'],
  things: { 'apple 1': 'fridge 1', 'mug 1': 'countertop 1', 'mug 2': 'drawer 1', 'knife 1': 'countertop 1' },
};
const task = (type: string, thing: string, receptacle: string): JsonObject => ({
  ...KITCHEN,
  task: { type, thing, receptacle },
});

async function playAll(options: JsonObject, actions: string[]) {
  let state = await play.reset({}, options);
  const seen: unknown[] = [];
  for (const action of actions) {
    const { state: next, reward, terminated, info } = await play.step(state, action);
    seen.push([next.report, reward, terminated, info.action_is_valid]);
    state = next;
  }
  return seen;
}

t.test('a heated apple is put on the countertop', async t => {
  t.same(
    await playAll(task('heat_and_place', 'apple', 'countertop'), [
      'Go to fridge 1',
      'take apple 1 from fridge 1',
      'open fridge 1',
      'take apple 1 from fridge 1',
      'heat apple 1 with microwave 1',
      'go to microwave 1',
      'heat apple 1 with microwave 1',
      'examine apple 1',
      'go to countertop 1',
      'move apple 1 to countertop 1',
    ]),
    [
      ['You walk to the fridge 1. The fridge 1 is closed.', 0, false, true],
      ['Nothing happens.', 0, false, false],
      ['The fridge 1 is open now. In it you see: apple 1.', 0, false, true],
      ['You take the apple 1 from the fridge 1.', 0, false, true],
      ['Nothing happens.', 0, false, false],
      ['You walk to the microwave 1. The microwave 1 is closed.', 0, false, true],
      ['You heat the apple 1 with the microwave 1.', 0, false, true],
      ['The apple 1 is hot.', 0, false, true],
      ['You walk to the countertop 1. On it you see: mug 1, knife 1.', 0, false, true],
      ['You put the apple 1 onto the countertop 1.', 10, true, true],
    ],
  );
});

t.test('an untreated thing does not count, a cooled one is no longer hot', async t => {
  const seen = await playAll(task('heat_and_place', 'mug', 'drawer'), [
    'go to countertop 1',
    'take mug 1 from countertop 1',
    'go to microwave 1',
    'heat mug 1 with microwave 1',
    'go to fridge 1',
    'cool mug 1 with fridge 1',
    'go to drawer 1',
    'open drawer 1',
    'put mug 1 in drawer 1',
  ]);
  t.same(seen.at(-1), ['You put the mug 1 into the drawer 1.', 0, false, true]);
});

t.test('parts of the reward name the progress, and going back takes them back', async t => {
  let state = await play.reset({}, task('heat_and_place', 'mug', 'drawer'));
  const actions = [
    'go to countertop 1',
    'take mug 1 from countertop 1',
    'put mug 1 in/on countertop 1',
    'take mug 1 from countertop 1',
    'go to microwave 1',
    'heat mug 1 with microwave 1',
    'go to fridge 1',
    'cool mug 1 with fridge 1',
    'go to microwave 1',
    'heat mug 1 with microwave 1',
    'nonsense',
    'go to drawer 1',
    'open drawer 1',
    'put mug 1 in/on drawer 1',
    'put mug 1 in/on drawer 1',
  ];
  const seen: Record<string, number>[] = [];
  for (const action of actions) {
    const step = await play.step(state, action);
    const { done, ...parts } = step.info.rewards as Record<string, number>;
    t.equal(done, step.reward);
    seen.push({ ...parts, done });
    state = step.state;
  }
  const none = { taken: 0, treated: 0, placed: 0, done: 0 };
  t.same(seen, [
    none,
    { ...none, taken: 1 },
    { ...none, taken: -1 },
    { ...none, taken: 1 },
    none,
    { ...none, treated: 1 },
    none,
    { ...none, treated: -1 },
    none,
    { ...none, treated: 1 },
    none,
    none,
    none,
    { taken: -1, treated: 0, placed: 1, done: 10 },
    none,
  ]);
});

t.test('only one thing is carried, and a knife is not heated', async t => {
  let state = await play.reset({}, task('pick_and_place', 'mug', 'sinkbasin'));
  for (const action of ['go to countertop 1', 'take knife 1 from countertop 1', 'go to microwave 1']) {
    state = (await play.step(state, action)).state;
  }
  const actions = admissible(state);
  t.ok(actions.includes('open microwave 1'));
  t.notOk(
    actions.some(action => /^(heat|take|put)/.test(action)),
    'closed, not heatable, hands full',
  );
  t.equal(canonical(' PUT  mug 1 on sinkbasin 1.'), 'put mug 1 in/on sinkbasin 1');
});

t.test('two of a kind and light', async t => {
  const two = await playAll(task('pick_two_and_place', 'mug', 'sinkbasin'), [
    'go to countertop 1',
    'take mug 1 from countertop 1',
    'go to sinkbasin 1',
    'put mug 1 in/on sinkbasin 1',
    'go to drawer 1',
    'open drawer 1',
    'take mug 2 from drawer 1',
    'go to sinkbasin 1',
    'put mug 2 in/on sinkbasin 1',
  ]);
  t.same(
    two.map(row => (row as unknown[])[1]),
    [0, 0, 0, 0, 0, 0, 0, 0, 10],
  );
  const light = {
    receptacles: ['desk 1', 'bed 1'],
    things: { 'book 1': 'bed 1', 'desklamp 1': 'desk 1' },
    task: { type: 'examine_in_light', thing: 'book', receptacle: 'desklamp' },
  };
  const state = await play.reset({}, light);
  t.match(await play.finish(state, 'oracle', 50), { success: true, steps: 4, total: 10 });
});

t.test('generated households of every type are solved by the oracle within 50 actions', async t => {
  for (const type of TASK_TYPES) {
    let longest = 0;
    for (let seed = 0; seed < 60; seed++) {
      const state = await play.reset({ tasks: [type] }, {}, seed);
      if (isWon(state) || state.household.task.type !== type) t.fail(`${type} ${seed} begins wrong`);
      const { success, steps, total } = await play.finish(state, 'oracle', 50);
      if (!success || total !== 10) t.fail(`${type} ${seed}: ${taskText(state.household.task)}`);
      longest = Math.max(longest, steps);
    }
    t.ok(longest <= 14, `${type}: at most ${longest} actions`);
  }
});

t.test('the oracle recovers from wherever a random player leaves it', async t => {
  for (let seed = 0; seed < 40; seed++) {
    const { result } = await play.finish(await play.reset({}, {}, seed), 'random', 15);
    if (!result || result.terminated) continue;
    const { success } = await play.finish(result.state, 'oracle', 50);
    if (!success) t.fail(`seed ${seed}`);
  }
  t.pass('recovered');
});

t.test('splits never share a household', async t => {
  for (const split of ['train', 'validation', 'test'] as const) {
    for (let seed = 0; seed < 10; seed++) {
      const { household, places } = await play.reset({ split }, {}, seed);
      const { task, receptacles, things } = household;
      t.equal(splitOf(`${taskText(task)} ${receptacles} ${things} ${places}`), split);
    }
  }
});

t.test('the catalogue is whole', async t => {
  for (const { receptacles, things } of Object.values(ROOMS)) {
    for (const kind of Object.keys(receptacles)) t.ok(RECEPTACLES[kind], kind);
    for (const kind of things) t.ok(THINGS[kind], kind);
  }
});

t.test('households that cannot be are refused', async t => {
  const wrong: [JsonObject, string][] = [
    [KITCHEN, ''],
    [task('pick_and_place', 'egg', 'drawer'), '/task'],
    [task('pick_two_and_place', 'apple', 'drawer'), '/task'],
    [task('heat_and_place', 'knife', 'drawer'), '/task'],
    [task('pick_and_place', 'mug', 'drawer'), '/task'],
    [task('pick_and_place', 'mug', 'safe'), '/task'],
    [task('examine_in_light', 'mug', 'desklamp'), '/task'],
    [{ ...task('pick_and_place', 'mug', 'drawer'), things: { 'mug 1': 'safe 1' } }, '/things/mug 1'],
    [{ ...task('pick_and_place', 'mug', 'drawer'), receptacles: ['rocket 1'] }, '/receptacles/0'],
  ];
  for (const [options, pointer] of wrong) {
    await t.rejects(play.reset({}, options), { name: 'InvalidOptions', pointer });
  }
});

t.test('keeps the contract', async t => checkContract(t, textHousehold));
