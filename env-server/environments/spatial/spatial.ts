import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { Canvas, type Color, cellSize, textWidth } from '../core/drawing/painting.ts';
import {
  type Environment,
  InvalidOptions,
  type ObservationFormat,
  type Picture,
  RIGHT_OR_WRONG,
  rightOrWrong,
  stepInfo,
  type Transition,
} from '../core/environment.ts';
import {
  COUNT,
  choice,
  dict,
  integers,
  LINES,
  list,
  type ObservationSpaces,
  orNull,
  text,
} from '../core/spaces.ts';
import { isInSplit } from '../core/splits.ts';
import {
  type Cell,
  COMPASS,
  configSchema,
  drawQuestion,
  FACINGS,
  NAMES,
  optionsSchema,
  QUESTION_KINDS,
  type Question,
  questionsOf,
  type Room,
  type RoomDirection,
  type RoomThing,
  relative,
  type SpatialConfig,
  type SpatialOptions,
  type SpatialState,
  seenThings,
  thingAt,
  turned,
  visible,
} from './questions.ts';

const CELL = 84;
const TEXT_MARGIN = 6;
const LINE = 1;
const FLOOR: Color = 0xf3efe6;
const GRID: Color = 0xcfc8b8;
const THING: Color = 0x3a6ea5;
const INK: Color = 0xffffff;
const PLAYER: Color = 0xc4462f;
/** Steps east and south of each facing. */
const STEPS: readonly (readonly [number, number])[] = [
  [0, -1],
  [1, 0],
  [0, 1],
  [-1, 0],
];

/** The room from above, north up, with what the player has seen of it; the player is the red arrow that points ahead. */
function render({ room, seen, position, facing }: SpatialState): Picture {
  const cell = cellSize(room.size, room.size, CELL);
  const side = room.size * cell + LINE;
  const canvas = new Canvas(side, side, FLOOR);
  for (let line = 0; line <= room.size; line++) {
    canvas.fill(line * cell, 0, LINE, side, GRID);
    canvas.fill(0, line * cell, side, LINE, GRID);
  }
  const things = seenThings({ room, seen });
  const longest = Math.max(1, ...things.map(({ name }) => textWidth(name, 1)));
  const scale = Math.max(1, Math.floor((cell - TEXT_MARGIN) / longest));
  for (const { name, row, col } of things) {
    const inset = Math.round(cell / 20);
    canvas.fill(
      col * cell + inset + LINE,
      row * cell + inset + LINE,
      cell - 2 * inset,
      cell - 2 * inset,
      THING,
    );
    canvas.label(name, (col + 0.5) * cell, (row + 0.5) * cell, textWidth(name, scale), INK);
  }
  const [east, south] = STEPS[FACINGS.indexOf(facing)];
  arrow(canvas, (position.col + 0.5) * cell, (position.row + 0.5) * cell, (0.3 * cell) | 0, east, south);
  return canvas;
}

/** A triangle around a point, its tip in the direction. */
function arrow(canvas: Canvas, x: number, y: number, size: number, east: number, south: number): void {
  for (let back = 0; back <= 2 * size; back++) {
    const ahead = size - back;
    const half = Math.round(back / 2.5);
    const left = Math.round(x + east * ahead - Math.abs(south) * half);
    const top = Math.round(y + south * ahead - Math.abs(east) * half);
    canvas.fill(left, top, south === 0 ? 1 : 2 * half + 1, south === 0 ? 2 * half + 1 : 1, PLAYER);
  }
}

interface Level {
  readonly room: Room;
  readonly position: Cell;
  readonly facing: RoomDirection;
  readonly question: Question;
}

/**
 * The room, the player's position and the question of an episode.
 * @throws InvalidOptions when the options make no such room
 */
function createLevel(config: SpatialConfig, rng: Random, options: SpatialOptions): Level {
  for (;;) {
    const room = options.things ? pinnedRoom(config.size, options.things) : randomRoom(config, rng);
    const position = options.position
      ? pinnedPlace(config.size, options.position)
      : randomPlace(config.size, rng);
    const facing = options.facing ?? rng.choice(FACINGS);
    const question = options.question
      ? pinnedQuestion(room, options.question)
      : drawQuestion(config.questions, room, rng);
    if (question && (options.things || isInSplit(() => levelKey({ room, question }), config.split))) {
      return { room, position, facing, question };
    }
    if (!question && options.things) {
      throw new InvalidOptions(
        '/things',
        `no question of the kinds ${config.questions.join(', ')} fits this room`,
      );
    }
  }
}

/**
 * Level identity: things, their cells and the question; the player's position does not matter. Questions name compass
 * directions, so a rotated room is another level.
 */
function levelKey({ room, question }: Pick<Level, 'room' | 'question'>): string {
  return `${describeRoom(room)} ${question.text}`;
}

function describeRoom(room: Room): string {
  return room.things.map(({ name, row, col }) => `${name} ${row} ${col}`).join(', ');
}

function randomPlace(size: number, rng: Random): Cell {
  return { row: rng.integer(size), col: rng.integer(size) };
}

function randomRoom({ size, things }: SpatialConfig, rng: Random): Room {
  const names = rng.shuffle(NAMES).slice(0, things);
  const cells = rng.shuffle(Array.from({ length: size * size }, (_, cell) => cell)).slice(0, things);
  return {
    size,
    things: names.map((name, index) => ({
      name,
      row: Math.floor(cells[index] / size),
      col: cells[index] % size,
    })),
  };
}

function pinnedPlace(size: number, [row, col]: readonly number[]): Cell {
  if (row >= size || col >= size) {
    throw new InvalidOptions('/position', `(${row}, ${col}) lies outside the ${size} × ${size} room`);
  }
  return { row, col };
}

function pinnedRoom(size: number, things: NonNullable<SpatialOptions['things']>): Room {
  const room: Room = { size, things };
  for (const [index, thing] of things.entries()) {
    const pointer = `/things/${index}`;
    if (thing.row >= size || thing.col >= size) {
      throw new InvalidOptions(
        pointer,
        `(${thing.row}, ${thing.col}) lies outside the ${size} × ${size} room`,
      );
    }
    if (thingAt(room, thing) !== thing) throw new InvalidOptions(pointer, 'another thing is there');
    if (things.findIndex(other => other.name.toLowerCase() === thing.name.toLowerCase()) !== index) {
      throw new InvalidOptions(pointer, `there is another ${thing.name}`);
    }
  }
  return room;
}

function pinnedQuestion(room: Room, text: string): Question {
  const all = QUESTION_KINDS.flatMap(kind => questionsOf(kind, room));
  const question = all.find(candidate => candidate.text === text);
  if (question) return question;
  throw new InvalidOptions(
    '/question',
    `the room does not allow this question; it allows e.g. ${all[0]?.text}`,
  );
}

/** Most characters of a report with the question and its answers. */
const MAX_OBSERVATION_LENGTH = 4096;

const REWARD_STEP = -0.1;
const REWARD_INVALID = -1;
const REWARD_RIGHT = 10;
const REWARD_WRONG = 0;

/** Parts of the reward. */
const NO_REWARDS = { steps: 0, answer: 0, refused: 0 };
const STEP = { ...NO_REWARDS, steps: REWARD_STEP };
const REFUSED = { ...NO_REWARDS, refused: REWARD_INVALID };

const TURNS = { 'turn right': 1, 'turn around': 2, 'turn left': 3 } as const;

/** Phrases of observations and actions, for word-level tokenizers; rooms with custom names need further words. */
const VOCABULARY: readonly string[] = [
  ...NAMES,
  ...COMPASS,
  ...['ahead', 'right', 'behind', 'left'],
  ...Array.from({ length: 10 }, (_, digit) => String(digit)),
  ...['look', 'turn left', 'turn right', 'turn around', 'go to ', 'answer '],
  ...['You face ', 'You stand at the ', ' and face ', ' and see ', 'nothing but the wall'],
  ...['the ', ' (', ')', ' ahead', ' to the ', ', ', '. ', '.', '?'],
  ...['Question: ', 'Possible answers: ', 'In which direction does the ', ' lie from the '],
  ...[' and face the ', '. Where is the ', 'Which thing is the fewest steps away from the '],
  ...[', walking along rows and columns?', 'How many things lie further ', ' than the '],
  ...[' is right.', ' is wrong.', 'You see no ', ' to go to.', 'The answer is one of: '],
  'You can look, turn left, turn right, turn around, go to a thing in sight, or answer.',
];

/** Spatial-v0: questions about a room that the player has to look around in. */
export const spatial = {
  spec: {
    id: 'Spatial-v0',
    title: 'Spatial questions',
    description: [
      'A player is in a room with things in it and is asked one question about their places: the direction from one to another, on which side a thing lies for somebody who faces another, which thing is nearest, or how many lie further one way. Looking shows the quarter of the room that lies ahead; the player can turn and walk to what is in sight, and answers once.',
      '',
      `Every step costs ${-REWARD_STEP}, an action that is unknown or impossible ${-REWARD_INVALID}. The right answer pays ${REWARD_RIGHT}, a wrong one ${REWARD_WRONG}; either ends the episode. \`info.rewards\` has the parts \`steps\`, \`answer\` and \`refused\`.`,
    ].join('\n'),
    tags: ['spatial', 'question answering', 'partial observation', 'text'],
    configSchema,
    optionsSchema,
    presets: {
      small: { size: 5, things: 3 },
      large: { size: 12, things: 8, max_steps: 40 },
      ...Object.fromEntries(QUESTION_KINDS.map(kind => [kind, { questions: [kind] }])),
    },
    observationSpace: { type: 'Text', maxLength: MAX_OBSERVATION_LENGTH },
    actionSpace: { type: 'Text', minLength: 1, maxLength: 200, charset: LINES },
    observationFormats: ['text', 'structured'],
    rewardRange: [REWARD_INVALID, REWARD_RIGHT],
    knownOptimum: {
      success: 1,
      source: 'four looks from one spot show the whole room; reference policy `oracle`',
    },
    maxEpisodeSteps: 20,
    ends: RIGHT_OR_WRONG,
    exampleAction: 'look',
    history: [{ version: 0, change: 'First version.' }],
  },

  describe: ({ size }: SpatialConfig) => ({
    instruction: `You are in a room of ${size} by ${size} paces with things in it, each on a spot of its own. Find out where they stand and answer the question. Every action costs a little, an impossible one more, and there is one answer.`,
    actionFormat: 'look | turn left | turn right | turn around | go to THING | answer ANSWER',
    vocabulary: VOCABULARY,
  }),

  observationSpaces({ size }: SpatialConfig): ObservationSpaces {
    const line = text(MAX_OBSERVATION_LENGTH);
    const place = { row: integers(0, size - 1), col: integers(0, size - 1) };
    return {
      text: line,
      structured: dict({
        room: dict({ size: COUNT, things: list(dict({ name: line, ...place })) }),
        position: dict(place),
        facing: choice(...FACINGS),
        question: line,
        choices: list(line),
        report: line,
        answer: orNull(line),
      }),
    };
  },

  reset(config: SpatialConfig, rng: Random, options: JsonObject): SpatialState {
    const level = createLevel(config, rng, options);
    return { ...level, seen: [], report: `You face ${level.facing}.`, answer: null };
  },

  step(state: SpatialState, action: Json): Transition<SpatialState> {
    const { room, position, facing, question } = state;
    if (state.answer !== null) return result(state, NO_REWARDS, true, false, false);
    const words = typeof action === 'string' ? action.trim().toLowerCase().replaceAll(/\s+/g, ' ') : '';

    if (words === 'look') {
      const report = `${stand(room, position)}You face ${facing} and see ${sight(state)}.`;
      const seen = withSeen(state, [...visible(room, position, facing), thingAt(room, position)]);
      return result({ ...state, seen, report }, STEP, false, true, report !== state.report);
    }
    if (Object.hasOwn(TURNS, words)) {
      const now = turned(facing, TURNS[words as keyof typeof TURNS]);
      return result({ ...state, facing: now, report: `You face ${now}.` }, STEP, false, true, true);
    }
    const goal = /^go to (?:the )?(.+)$/.exec(words)?.[1];
    const thing = goal && visible(room, position, facing).find(seen => seen.name.toLowerCase() === goal);
    if (thing) {
      const report = `You stand at the ${thing.name} and face ${facing}.`;
      const there = { row: thing.row, col: thing.col };
      const seen = withSeen(state, [thing]);
      return result({ ...state, seen, position: there, report }, STEP, false, true, true);
    }
    const given = /^answer:? (.+)$/.exec(words)?.[1];
    const answer =
      given && question.choices.find(choice => choice.toLowerCase() === given.replace(/^the /, ''));
    if (answer) {
      const right = answer === question.answer;
      const report = right ? `${answer} is right.` : `${answer} is wrong.`;
      const rewards = { ...NO_REWARDS, answer: right ? REWARD_RIGHT : REWARD_WRONG };
      return result({ ...state, answer, report }, rewards, true, true, true);
    }
    const report = complaint(goal, given, question);
    return result({ ...state, report }, REFUSED, false, false, false);
  },

  levelKey: (state: SpatialState) => levelKey(state),

  observe(state: SpatialState, format: ObservationFormat): Json {
    const { room, position, facing, question, report, answer } = state;
    if (format === 'structured') {
      const { text, choices } = question;
      const known = { size: room.size, things: seenThings(state) };
      return { room: known, position, facing, question: text, choices, report, answer };
    }
    return `${report}\nQuestion: ${question.text}\nPossible answers: ${question.choices.join(', ')}`;
  },

  validActions,
  render,

  references: {
    oracle: {
      title: 'The answer',
      plan: ({ question, answer }: SpatialState) => (answer === null ? [`answer ${question.answer}`] : []),
    },
    random: {
      title: 'Random possible actions',
      plan: (state: SpatialState, _count: number, rng: Random) => {
        const actions = validActions(state);
        return actions.length > 0 ? [rng.choice(actions)] : [];
      },
    },
  },
} satisfies Environment<SpatialConfig, SpatialState>;

function result(
  state: SpatialState,
  rewards: typeof NO_REWARDS,
  over: boolean,
  valid: boolean,
  effective: boolean,
): Transition<SpatialState> {
  const success = state.answer !== null && state.answer === state.question.answer;
  return {
    state,
    reward: rewards.steps + rewards.answer + rewards.refused,
    terminated: over,
    info: stepInfo(success, valid, effective, over && rightOrWrong(success), { rewards }),
  };
}

/**
 * Names of the things seen before and now, in the room's order, so that the order does not reveal when they were seen.
 */
function withSeen(
  { room, seen = [] }: SpatialState,
  things: readonly (RoomThing | undefined)[],
): readonly string[] {
  const names = new Set([...seen, ...things.flatMap(thing => thing?.name ?? [])]);
  return room.things.map(({ name }) => name).filter(name => names.has(name));
}

/** "You stand at the lamp. " when the player is at a thing. */
function stand(room: Room, position: Cell): string {
  const thing = thingAt(room, position);
  return thing ? `You stand at the ${thing.name}. ` : '';
}

function sight({ room, position, facing }: SpatialState): string {
  const things = visible(room, position, facing).map(thing => {
    const { ahead, right } = relative(position, facing, thing);
    const side = right === 0 ? '' : `, ${Math.abs(right)} to the ${right > 0 ? 'right' : 'left'}`;
    return `the ${thing.name} (${ahead} ahead${side})`;
  });
  return things.join(', ') || 'nothing but the wall';
}

function complaint(goal: string | undefined, given: string | undefined, question: Question): string {
  if (goal) return `You see no ${goal} to go to.`;
  if (given) return `The answer is one of: ${question.choices.join(', ')}.`;
  return 'You can look, turn left, turn right, turn around, go to a thing in sight, or answer.';
}

function validActions({ room, position, facing, question, answer }: SpatialState): readonly string[] {
  if (answer !== null) return [];
  return [
    'look',
    ...Object.keys(TURNS),
    ...visible(room, position, facing).map(thing => `go to ${thing.name}`),
    ...question.choices.map(choice => `answer ${choice}`),
  ];
}
