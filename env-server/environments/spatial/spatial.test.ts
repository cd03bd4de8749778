import { hash } from 'node:crypto';
import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import {
  compassDirection,
  FACINGS,
  QUESTION_KINDS,
  questionsOf,
  type Room,
  relative,
  visible,
} from './questions.ts';
import { spatial } from './spatial.ts';

const play = playing(spatial);

/**
 *   0 1 2 3 4
 * 0 L . . . .
 * 1 . . . . .
 * 2 . . C . .
 * 3 . . . . V
 * 4 . . P . .
 */
const ROOM: Room = {
  size: 5,
  things: [
    { name: 'lamp', row: 0, col: 0 },
    { name: 'chair', row: 2, col: 2 },
    { name: 'vase', row: 3, col: 4 },
    { name: 'piano', row: 4, col: 2 },
  ],
};
const [LAMP, CHAIR, VASE, PIANO] = ROOM.things;
const OPTIONS: JsonObject = { things: ROOM.things, position: [2, 0], facing: 'east' };

const answers = (kind: (typeof QUESTION_KINDS)[number]) =>
  Object.fromEntries(questionsOf(kind, ROOM).map(({ text, answer }) => [text, answer]));

t.test('directions and sides are right', async t => {
  t.equal(compassDirection(LAMP, VASE), 'south-east');
  t.equal(compassDirection(PIANO, CHAIR), 'north');
  t.equal(compassDirection(VASE, CHAIR), 'north-west');
  t.same(relative(CHAIR, 'south', VASE), { ahead: 1, right: -2 });
  t.same(relative(CHAIR, 'west', PIANO), { ahead: 0, right: -2 });
  t.match(answers('direction'), {
    'In which direction does the lamp lie from the piano?': 'north-west',
    'In which direction does the piano lie from the chair?': 'south',
  });
  t.match(answers('side'), {
    'You stand at the chair and face the piano. Where is the vase?': 'left',
    'You stand at the piano and face the chair. Where is the vase?': 'right',
    'You stand at the piano and face the vase. Where is the lamp?': 'left',
  });
});

t.test('nearest and count questions are right, doubtful ones are not asked', async t => {
  t.match(answers('nearest'), {
    'Which thing is the fewest steps away from the chair, walking along rows and columns?': 'piano',
    'Which thing is the fewest steps away from the lamp, walking along rows and columns?': 'chair',
  });
  t.notOk(
    'Which thing is the fewest steps away from the vase, walking along rows and columns?' in
      answers('nearest'),
    'chair and piano are both three steps from the vase',
  );
  t.match(answers('count'), {
    'How many things lie further north than the vase?': '2',
    'How many things lie further east than the vase?': '0',
    'How many things lie further west than the chair?': '1',
  });
});

t.test('the four looks from any spot show every other thing', async t => {
  for (let row = 0; row < 5; row++) {
    for (let col = 0; col < 5; col++) {
      const seen = new Set(FACINGS.flatMap(facing => visible(ROOM, { row, col }, facing)));
      const here = ROOM.things.filter(thing => thing.row === row && thing.col === col);
      t.equal(seen.size + here.length, ROOM.things.length);
    }
  }
});

t.test('an episode: look, walk, turn, answer', async t => {
  const question = 'In which direction does the piano lie from the chair?';
  let state = await play.reset({ size: 5 }, { ...OPTIONS, question });
  const seen: unknown[] = [];
  for (const action of [
    'look',
    'Go to the chair',
    'turn right',
    'LOOK',
    'go to lamp',
    'answer up',
    'answer South',
  ]) {
    const { state: next, reward, terminated, info } = await play.step(state, action);
    seen.push([next.report, reward, terminated, info.action_is_valid, info.success]);
    state = next;
  }
  t.same(seen, [
    [
      'You face east and see the chair (2 ahead), the piano (2 ahead, 2 to the right), the vase (4 ahead, 1 to the right).',
      -0.1,
      false,
      true,
      false,
    ],
    ['You stand at the chair and face east.', -0.1, false, true, false],
    ['You face south.', -0.1, false, true, false],
    ['You stand at the chair. You face south and see the piano (2 ahead).', -0.1, false, true, false],
    ['You see no lamp to go to.', -1, false, false, false],
    [
      'The answer is one of: north, north-east, east, south-east, south, south-west, west, north-west.',
      -1,
      false,
      false,
      false,
    ],
    ['south is right.', 10, true, true, true],
  ]);
});

t.test('picture and data show what was seen, and nothing else of the room', async t => {
  let state = await play.reset({ size: 5 }, OPTIONS);
  const known = () =>
    (spatial.observe(state, 'structured') as { room: { things: { name: string }[] } }).room.things.map(
      ({ name }) => name,
    );
  t.same(known(), []);
  const picture = () => hash('sha256', spatial.render(state).data, 'hex');
  const empty = picture();
  state = (await play.step(state, 'turn around')).state;
  state = (await play.step(state, 'look')).state;
  t.same(known(), [], 'to the west is nothing but the wall');
  for (const action of ['turn left', 'look']) state = (await play.step(state, action)).state;
  t.same(known(), ['piano']);
  t.not(picture(), empty);
  for (const action of ['turn left', 'go to chair']) state = (await play.step(state, action)).state;
  t.same(known(), ['chair', 'piano'], 'in the order of the room');
});

t.test('names that every object has are no turns', async t => {
  const state = await play.reset({ size: 5 }, OPTIONS);
  for (const action of ['constructor', 'toString', '__proto__']) {
    t.match(await play.step(state, action), { reward: -1, state: { facing: 'east' } });
  }
});

t.test('a wrong answer pays nothing and ends', async t => {
  const question = 'How many things lie further north than the vase?';
  const state = await play.reset({ size: 5 }, { ...OPTIONS, question });
  t.match(await play.step(state, 'answer 3'), { reward: 0, terminated: true, info: { success: false } });
  t.match(await play.step(state, 'answer: 2'), { reward: 10, terminated: true, info: { success: true } });
});

t.test('rooms that cannot be are refused', async t => {
  const wrong: [JsonObject, string][] = [
    [{ ...OPTIONS, position: [9, 0] }, '/position'],
    [{ things: [...ROOM.things, { name: 'drum', row: 0, col: 0 }] }, '/things/4'],
    [{ things: [...ROOM.things, { name: 'Lamp', row: 1, col: 0 }] }, '/things/4'],
    [{ things: [{ name: 'drum', row: 7, col: 0 }, LAMP, CHAIR] }, '/things/0'],
    [{ ...OPTIONS, question: 'Why?' }, '/question'],
  ];
  for (const [options, pointer] of wrong) {
    await t.rejects(play.reset({ size: 5 }, options), { name: 'InvalidOptions', pointer });
  }
});

t.test('the oracle earns 10 on every kind of question', async t => {
  for (const kind of QUESTION_KINDS) {
    const state = await play.reset({ preset: kind }, {}, 6);
    t.equal(state.question.kind, kind);
    t.match(await play.finish(state, 'oracle', 20), { success: true, total: 10, steps: 1 });
  }
});

t.test('keeps the contract', async t => checkContract(t, spatial));

t.test('a session that was stored without what was seen continues with nothing seen', async t => {
  const { seen: _, ...stored } = await play.reset({}, OPTIONS);
  t.match(spatial.observe(stored, 'structured'), { room: { things: [] } });
  t.ok(spatial.render(stored));
  const { state } = await play.step(stored, 'look');
  t.match(spatial.observe(state, 'structured'), { room: { things: [{ name: 'chair' }, { name: 'vase' }] } });
});
