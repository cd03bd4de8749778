import type { Random } from '../../../shared/random.ts';
import { COMPASS, compassDirection, offset, type Room, type RoomThing, walkingDistance } from './room.ts';

export const QUESTION_KINDS = ['direction', 'side', 'nearest', 'count'] as const;
export type QuestionKind = (typeof QUESTION_KINDS)[number];

export type Question = {
  readonly kind: QuestionKind;
  readonly text: string;
  readonly choices: readonly string[];
  /** One of the choices. */
  readonly answer: string;
};

const SIDES = ['ahead', 'right', 'behind', 'left'] as const;

/** All questions of a kind that the room answers without doubt. */
export function questionsOf(kind: QuestionKind, room: Room): Question[] {
  const { things } = room;
  switch (kind) {
    case 'direction':
      return pairs(things).map(([a, b]) => ({
        kind,
        text: `In which direction does the ${b.name} lie from the ${a.name}?`,
        choices: COMPASS,
        answer: compassDirection(a, b),
      }));
    case 'side':
      return pairs(things).flatMap(([a, b]) =>
        things.flatMap(c => {
          const side = c === a || c === b ? undefined : sideOf(a, b, c);
          if (!side) return [];
          const text = `You stand at the ${a.name} and face the ${b.name}. Where is the ${c.name}?`;
          return [{ kind, text, choices: SIDES, answer: side }];
        }),
      );
    case 'nearest':
      return things.flatMap(from => {
        const others = things
          .filter(thing => thing !== from)
          .toSorted((a, b) => walkingDistance(from, a) - walkingDistance(from, b));
        if (others.length < 2 || walkingDistance(from, others[0]) === walkingDistance(from, others[1]))
          return [];
        const text = `Which thing is the fewest steps away from the ${from.name}, walking along rows and columns?`;
        const choices = things.filter(thing => thing !== from).map(thing => thing.name);
        return [{ kind, text, choices, answer: others[0].name }];
      });
    case 'count':
      return things.flatMap(from =>
        (['north', 'east', 'south', 'west'] as const).map(way => {
          const count = things.filter(thing => {
            const { east, south } = offset(from, thing);
            return { north: -south, south, east, west: -east }[way] > 0;
          }).length;
          return {
            kind,
            text: `How many things lie further ${way} than the ${from.name}?`,
            choices: things.map((_, index) => String(index)),
            answer: String(count),
          };
        }),
      );
  }
}

/** A random question, kinds being equally likely; null when the room has none of them. */
export function drawQuestion(kinds: readonly QuestionKind[], room: Room, rng: Random): Question | null {
  for (const kind of rng.shuffle(kinds)) {
    const questions = questionsOf(kind, room);
    if (questions.length > 0) return rng.choice(questions);
  }
  return null;
}

function pairs(things: readonly RoomThing[]): [RoomThing, RoomThing][] {
  return things.flatMap(a => things.flatMap(b => (a === b ? [] : [[a, b] as [RoomThing, RoomThing]])));
}

/** Quarter in which c lies for a player at a who faces b; none on the border between two. */
function sideOf(a: RoomThing, b: RoomThing, c: RoomThing): (typeof SIDES)[number] | undefined {
  const face = offset(a, b);
  const look = offset(a, c);
  const ahead = face.east * look.east + face.south * look.south;
  const right = face.east * look.south - face.south * look.east;
  if (Math.abs(ahead) === Math.abs(right)) return undefined;
  if (Math.abs(ahead) > Math.abs(right)) return ahead > 0 ? 'ahead' : 'behind';
  return right > 0 ? 'right' : 'left';
}
