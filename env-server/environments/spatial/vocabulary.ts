import { NAMES } from './config.ts';
import { COMPASS } from './room.ts';

/** Phrases that observations and actions are made of, for word-level tokenizers; rooms with custom names need further words. */
export const VOCABULARY: readonly string[] = [
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
