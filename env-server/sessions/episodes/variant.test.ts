import t from 'tap';
import type { Json } from '../../../shared/json.ts';
import type { Space } from '../../environments/core/spaces.ts';
import { actionCheck } from './variant.ts';

const verdicts = (space: Space, actions: Json[]) => actions.map(actionCheck(space));

t.test('the check covers types, not meaning', async t => {
  t.same(verdicts({ type: 'Discrete', n: 2 }, [0, 99, 'Up', 'nonsense']), new Array(4).fill(undefined));
  t.same(verdicts({ type: 'Text', maxLength: 3 }, ['', 'long text']), [undefined, undefined]);
});

t.test('a wrong type is named, with the right one', async t => {
  t.match(verdicts({ type: 'Discrete', n: 2 }, [null, [1], true]), [
    /integer id or a name, got null/,
    /got an array/,
    /got a value of type boolean/,
  ]);
  t.match(verdicts({ type: 'Text', maxLength: 3 }, [1, {}]), [/must be a string, got/, /type object/]);
  const dict: Space = {
    type: 'Dict',
    spaces: { row: { type: 'Discrete', n: 4 }, word: { type: 'Text', maxLength: 9 } },
  };
  t.match(
    verdicts(dict, [{ row: 1, word: 'a' }, { row: 1 }, { row: 1, word: 2 }, { row: 1, word: '', col: 2 }, 3]),
    [
      undefined,
      /lacks the field "word"/,
      /field "word": the action must be a string/,
      /unknown field "col"; it takes row, word/,
      /must be an object with row, word/,
    ],
  );
  const json: Space = {
    type: 'Json',
    schema: { type: 'object', required: ['x'], properties: { x: { type: 'number' } } },
  };
  t.match(verdicts(json, [{ x: 1 }, { x: 'a' }, {}]), [undefined, /\/x must be number/, /required/]);
});
