import t from 'tap';
import { mapActions, parseResponse } from '../../shared/response.ts';
import { buildByteTokenizer, buildWordTokenizer } from '../models/tokenizer/builder.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { compactByteWords, compactPrompt, compactVocabulary } from './compact.ts';
import type { PromptTask, TurnView } from './prompt.ts';
import { BANDIT, LAKE, POND, ROOM, SOKOBAN } from './tasks.test-data.ts';

const view = (state: string, part: Partial<TurnView> = {}): TurnView => ({
  turn: 1,
  state,
  actionsLeft: 10,
  lastInvalid: false,
  ...part,
});

const tokenizer = buildWordTokenizer(compactVocabulary([SOKOBAN, LAKE, BANDIT]));

t.test('grids take at most 24 tokens a turn, five turns at most 161', async t => {
  for (const [task, state] of [
    [SOKOBAN, ROOM],
    [LAKE, POND],
  ] as const) {
    const prompt = compactPrompt(task, tokenizer);
    const tokens = prompt.tokens!;
    const longest = tokens.turn(view(state, { lastInvalid: true })).length;
    t.ok(longest <= 24, `${longest} tokens`);
    t.ok(5 * (longest + 8) <= 161);
    t.equal(tokens.turn(view(state)).length, longest - 1);
    const response = tokenizer.encode(prompt.compose(['Up', 'Down']));
    t.equal(response.length, 6);
    t.same(tokens.stopTokenIds.includes(response[5]), true, 'it ends with a stop token');
    t.same([...tokens.actionTokenIds].map(id => tokenizer.decode([id])).sort(), [
      'Down',
      'Left',
      'Right',
      'Up',
    ]);
  }
  t.ok(tokenizer.vocabularySize <= 46, `${tokenizer.vocabularySize} words`);
});

t.test('the border of walls is merged and nothing is lost', async t => {
  const { wording } = compactPrompt(SOKOBAN);
  t.equal(wording.turn(view(ROOM)), '<10 left><walled>_P__\n_X__\n__O_\n____');
  const open = ROOM.replace('######', '###_##');
  t.equal(wording.turn(view(open)), `<10 left><grid>${open}`, 'a border with a gap is drawn whole');
});

t.test('a state that spells the name of a token of bytes keeps its text', async t => {
  const own = buildByteTokenizer(compactByteWords([BANDIT]), [['Ġ', 'a']]);
  const { tokens } = compactPrompt(BANDIT, own);
  for (const state of ['é', 'Ġ', 'Ġa', 'ÿ'])
    t.ok(own.decode(tokens!.turn(view(state))).includes(state), state);
});

t.test('turns that are left are said where the run asks for it', async t => {
  const task = { ...LAKE, turnsLeft: true };
  const own = buildWordTokenizer(compactVocabulary([task]));
  const prompt = compactPrompt(task, own);
  const text = prompt.wording.turn(view(POND, { turn: 2, actionsLeft: 7 }));
  t.match(text, /^<7 left><4 turns><grid>/);
  const plain = compactPrompt(LAKE, tokenizer).tokens!.turn(view(POND, { turn: 2, actionsLeft: 7 }));
  t.equal(prompt.tokens!.turn(view(POND, { turn: 2, actionsLeft: 7 })).length, plain.length + 1);
  t.throws(() => compactPrompt(task, tokenizer).tokens!.turn(view(POND)), /cannot write .*<5 turns>/);
});

t.test('appended turn by turn the tokens are those of the whole text', async t => {
  for (const [task, states] of [
    [SOKOBAN, [ROOM, '######\n##__##\n#_X__#\n#__O_#\n######\n######']],
    [LAKE, [POND, POND]],
    [BANDIT, ['Clerk or Stuntman', 'Stuntman or Clerk']],
  ] as const) {
    const prompt = compactPrompt(task, tokenizer);
    const tokens = prompt.tokens!;
    const ids = [...tokens.opening()];
    let text = prompt.wording.system();
    for (const [i, state] of states.entries()) {
      const now = view(state, { turn: i + 1, actionsLeft: task.maxActionsPerTrajectory, lastInvalid: i > 0 });
      const response = tokenizer.encode(prompt.compose([task === BANDIT ? 'Clerk' : 'Down']));
      ids.push(...tokens.turn(now), ...response, ...tokens.close(response));
      text += prompt.wording.turn(now) + prompt.prime + tokenizer.decode(response);
    }
    t.same(ids, tokenizer.encode(text));
    t.equal(tokenizer.decode(ids), text);
  }
});

t.test('past turns that are repeated read as before', async t => {
  const prompt = compactPrompt(LAKE, tokenizer);
  const past = { view: view(POND), response: '<think></think><answer>Up||Down</answer>' };
  const ids = prompt.tokens!.folded(view(POND, { turn: 2, actionsLeft: 8 }), [past]);
  t.equal(
    tokenizer.decode(ids),
    `<10 left><grid>${POND}<think></think><answer>Up||Down</answer><8 left><grid>${POND}<think>`,
  );
});

t.test('without thinking the response is primed with the answer', async t => {
  const prompt = compactPrompt({ ...LAKE, think: false }, tokenizer);
  t.equal(prompt.prime, '<answer>');
  t.equal(prompt.compose(['Up']), 'Up</answer>');
});

t.test('the grammar allows well-formed responses and nothing else', async t => {
  for (const think of [true, false]) {
    const prompt = compactPrompt({ ...LAKE, think }, tokenizer);
    const { grammar, stopTokenIds } = prompt.tokens!;
    const said = new Set<string>();
    const walk = (state: number, ids: readonly number[]): void => {
      const { tokens, next } = grammar!.states[state];
      if (tokens.length === 0) {
        said.add(tokenizer.decode(ids));
        t.equal(ids.at(-1), stopTokenIds[0]);
      }
      tokens.forEach((token, i) => {
        walk(next[i], [...ids, token]);
      });
    };
    walk(grammar!.start, []);
    t.equal(said.size, 4 + 4 * 4);
    for (const text of said) {
      const { actions } = parseResponse(prompt.prime + text, prompt.format);
      t.equal(text, prompt.compose(actions));
      t.equal(mapActions(actions, { names: LAKE.description.actions!, start: 1 }).length, actions.length);
    }
  }
});

const said = (task: PromptTask, own: Tokenizer): string[] | undefined => {
  const { grammar } = compactPrompt(task, own).tokens!;
  const texts: string[] = [];
  const walk = (state: number, ids: readonly number[]): void => {
    const { tokens, next } = grammar!.states[state];
    if (tokens.length === 0) texts.push(own.decode(ids));
    tokens.forEach((token, i) => {
      walk(next[i], [...ids, token]);
    });
  };
  if (grammar) walk(grammar.start, []);
  return grammar && texts.sort();
};

t.test('bytes write any state, and actions that begin alike share what they begin with', async t => {
  const description = { environmentId: 'me/Guess-v0', instruction: 'Guess.', legend: [] };
  const examples = ['1', '10', '100', 'née', 'néant'];
  const task: PromptTask = {
    ...BANDIT,
    think: false,
    maxActionsPerTurn: 1,
    description: { ...description, exampleActions: examples },
  };
  const own = buildByteTokenizer(compactByteWords([task]));
  const { tokens } = compactPrompt(task, own);
  const text = tokens!.turn(view('Zu groß – 太大了. \ud800'));
  t.equal(own.decode(text), '<10 left><text>Zu groß – 太大了. \ufffd<answer>');
  t.same(said(task, own), examples.map(action => `${action}</answer>`).sort());
  t.equal(said({ ...task, maxActionsPerTurn: 2 }, own)!.length, 5 + 25);
  const spelled = buildByteTokenizer(compactByteWords([{ ...task, description }]));
  t.same(said(task, spelled), said(task, own), 'the same where they are no separate tokens');
  t.ok(tokens!.actionTokenIds.has(own.idOf('100')!) && !tokens!.actionTokenIds.has(own.idOf('</answer>')!));
  const free = compactPrompt({ ...task, description }, own).tokens!;
  t.equal(free.grammar, undefined);
  t.ok(free.actionTokenIds.has(65) && !free.actionTokenIds.has(own.idOf('</answer>')!));
  const many = Array.from({ length: 5000 }, (_, i) => `take ${Math.imul(i, 2654435761)} now`);
  t.equal(
    said({ ...task, responseLength: 30, description: { ...description, exampleActions: many } }, own),
    undefined,
  );
});

t.test('the numbers of JSON actions are spelled, so that a policy can write others', async t => {
  const exampleActions = ['{"order":[4,10],"price":-101.5}', '{"order":[3,1],"price":99.25}', '"hold"'];
  const description = { environmentId: 'me/Shop-v0', instruction: 'Order.', legend: [], exampleActions };
  const words = (jsonActions: boolean) =>
    compactByteWords([{ ...BANDIT, description: { ...description, jsonActions } }]);
  const [spelled, whole] = [true, false].map(json => buildByteTokenizer(words(json)));
  const other = '{"order":[5,2],"price":7.5}';
  t.same(
    spelled.encode(other).map(id => spelled.decode([id])),
    ['{"order":[', '5', ',', '2', '],"price":', '7', '.', '5', '}'],
  );
  t.equal(spelled.encode('"hold"').length, 1);
  t.equal(whole.encode(exampleActions[0]).length, 1, 'a text is one token');
});

t.test('an action that no response has room for is named', async t => {
  const actions = ['Pull it now', 'Pull it hard', 'Rest'];
  const description = { ...BANDIT.description, vocabulary: undefined, actions };
  const task = { ...BANDIT, think: false, description };
  const own = buildByteTokenizer(
    compactByteWords([{ ...task, description: { ...description, actions: [] } }]),
  );
  t.throws(
    () => compactPrompt(task, own),
    /response_length 8 has no room for "Pull it hard" of Bandit-v0, which takes 13 tokens.*raise it to 13/,
  );
  t.doesNotThrow(
    () => compactPrompt({ ...task, responseLength: 13 }, own),
    'the longest is the one that is named',
  );
  const exampleActions = ['{"x":1.5}', '{"x":10.25}'];
  const json = {
    ...task,
    description: { ...description, actions: undefined, exampleActions, jsonActions: true },
  };
  const spelling = buildByteTokenizer(compactByteWords([json]));
  const room = compactPrompt({ ...json, responseLength: 8 }, spelling);
  t.ok(room);
  t.throws(
    () => compactPrompt({ ...json, responseLength: 3 }, spelling),
    /no room for "\{\\"x\\":10\.25\}" .* raise it to 8 or more: each digit of a JSON action is a token/,
  );
});

t.test('the compact prompt names what it cannot write', async t => {
  const lake = buildWordTokenizer(compactVocabulary([LAKE]));
  const solved = view(ROOM.replace('P', 'S'));
  t.throws(() => compactPrompt(SOKOBAN, lake).tokens!.turn(solved), /cannot write "S" of Sokoban-v0/);
  t.throws(() => compactPrompt(LAKE, buildWordTokenizer(['Up'])), /in which <\/answer> is one token/);
  const free: PromptTask = { ...LAKE, description: { ...LAKE.description, vocabulary: undefined } };
  t.throws(() => compactVocabulary([free]), /FrozenLake-v0 has no fixed vocabulary/);
});
