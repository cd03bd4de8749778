import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { parseResponse } from '../../shared/response.ts';
import { allowedTokens, grammarBytes, tokenGrammar } from '../generation/grammar.ts';
import { buildByteTokenizer } from '../models/tokenizer/builder.ts';
import { loadTokenizer } from '../models/tokenizer/load.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { chatPrompt } from './chat.ts';
import { compactByteWords, compactPrompt } from './compact.ts';
import { StateGrammars } from './grammar.ts';
import type { Prompt, PromptTask } from './prompt.ts';
import { BANDIT } from './tasks.test-data.ts';

const TASK: PromptTask = { ...BANDIT, maxActionsPerTurn: 2, responseLength: 40 };
const qwen = await loadTokenizer(
  join(fileURLToPath(new URL('../../test/golden/models/', import.meta.url)), 'qwen2-tiny'),
);
const bytes = buildByteTokenizer(compactByteWords([TASK]));

const PROMPTS: readonly [string, Tokenizer, (task: PromptTask) => Prompt][] = [
  ['chat', qwen, task => chatPrompt(task, qwen)],
  ['compact', bytes, task => compactPrompt(task, bytes)],
];

/** Every response that a prompt allows with these actions, as its tokens. */
function responsesOf(prompt: Prompt, actions: readonly string[]): Int32Array[] {
  const { start, states } = tokenGrammar(prompt.tokens!.stateGrammar(actions));
  const found: Int32Array[] = [];
  const walk = (state: number, ids: readonly number[]): void => {
    const { tokens, next } = states[state];
    if (tokens.length === 0) found.push(Int32Array.from(ids));
    for (const [i, token] of tokens.entries()) walk(next[i], [...ids, token]);
  };
  walk(start, []);
  return found;
}

for (const [name, tokenizer, promptOf] of PROMPTS) {
  for (const think of [false, true]) {
    t.test(
      `${name}, think ${think}: a response holds one action of the state, and ends after it`,
      async t => {
        const prompt = promptOf({ ...TASK, think });
        const actions = ['up', 'up up', 'go north', 'go north-east', 'né', '1', '10'];
        const said = responsesOf(prompt, actions).map(ids => {
          const { actions: parsed, wellFormed } = parseResponse(
            prompt.prime + tokenizer.decode([...ids]),
            prompt.format,
          );
          t.ok(wellFormed);
          return parsed.join(' || ');
        });
        t.same(said.sort(), [...actions].sort());
        const spelled = actions.map(action => prompt.tokens!.stateResponse(action)!.join());
        t.same(spelled.sort(), responsesOf(prompt, actions).map(String).sort());
      },
    );
  }

  t.test(`${name}: an action that begins another may end, or continue`, async t => {
    const prompt = promptOf({ ...TASK, think: false });
    const grammar = prompt.tokens!.stateGrammar(['up', 'up up']);
    const [short, long] = ['up', 'up up'].map(action =>
      Int32Array.from(tokenizer.encode(`${action}</answer>`)),
    );
    const after = allowedTokens(grammar, short).at(short.findIndex((id, i) => id !== long[i]))!;
    const at = short.findIndex((id, i) => id !== long[i]);
    t.same([...after].sort(), [short[at], long[at]].sort(), 'the tag or the second word');
    t.same(
      allowedTokens(grammar, short)
        .slice(at + 1)
        .map(ids => ids.length),
      short.slice(at + 1).length === 0 ? [] : [...short.slice(at + 1)].map(() => 1),
      'nothing but the rest of the tag comes after the action',
    );
  });

  t.test(`${name}: states with the same actions share a grammar, in any order`, async t => {
    const { stateGrammar } = promptOf(TASK).tokens!;
    const grammar = stateGrammar(['a', 'b', 'b']);
    t.equal(stateGrammar(['b', 'a']), grammar);
    t.not(stateGrammar(['a', 'c']), grammar);
  });

  t.test(`${name}: what cannot be answered is named`, async t => {
    const { stateGrammar } = promptOf({ ...TASK, responseLength: 12 }).tokens!;
    t.throws(() => stateGrammar([]), /Bandit-v0 lists 0 valid actions \(none, …\)/);
    t.throws(() => stateGrammar(['a'.repeat(50)]), /response_length 12 has no room for "a{50}"/);
  });
}

t.test('chat: an action that would read as another is left out', async t => {
  const prompt = chatPrompt({ ...TASK, maxActionsPerTurn: 1, think: false }, qwen);
  t.equal(responsesOf(prompt, ['a', 'a || b', 'a</answer>']).length, 1);
  t.equal(prompt.tokens!.stateResponse('a</answer>'), undefined);
  t.throws(() => prompt.tokens!.stateGrammar(['</answer>']), /lists 1 valid actions/);
});

t.test('more tokens of actions than a grammar may hold are refused with their number', async t => {
  const ids = Array.from({ length: 2 ** 10 }, (_, i) => i % 200);
  const task = { ...TASK, responseLength: 2 ** 11 };
  const grammars = new StateGrammars(task, bytes, { lead: [], separator: [], end: [250] }, () => ids);
  const actions = Array.from({ length: 2 ** 7 + 1 }, (_, i) => `action ${i}`);
  t.throws(() => grammars.of(actions), /lists 129 valid actions of 132096 tokens; the limit is 131072/);
  t.ok(grammars.of(actions.slice(1)));
});

t.test('grammars that were not used for long are forgotten', async t => {
  const letters = (action: string) => Array.from(action, letter => letter.charCodeAt(0));
  const around = { lead: [], separator: [], end: [0] };
  const first = new StateGrammars(TASK, bytes, around, letters).of(['a', 'b']);
  const size = grammarBytes(first) + 2 * JSON.stringify(['a', 'b']).length;
  const grammars = new StateGrammars(TASK, bytes, around, letters, 3 * size);
  const [ab, ac, ad] = ['b', 'c', 'd'].map(other => grammars.of(['a', other]));
  t.equal(grammars.of(['a', 'b']), ab);
  grammars.of(['a', 'e']);
  t.equal(grammars.of(['a', 'b']), ab);
  t.equal(grammars.of(['a', 'd']), ad);
  t.not(grammars.of(['a', 'c']), ac);
});
