import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { parseResponse } from '../../shared/response.ts';
import type { TokenGrammar } from '../generation/grammar.ts';
import { buildWordTokenizer } from '../models/tokenizer/builder.ts';
import { loadTokenizer } from '../models/tokenizer/load.ts';
import { ChatTemplate } from '../models/tokenizer/tokenizer.ts';
import { chatPrompt, fill } from './chat.ts';
import { promptMessages, type TurnView } from './prompt.ts';
import { BANDIT, LAKE, POND } from './tasks.test-data.ts';

const MODELS = fileURLToPath(new URL('../../test/golden/models/', import.meta.url));
/** Template for tokenizers that have none. */
const PLAIN = new ChatTemplate(
  '{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}',
  {},
);
const FIRST: TurnView = { turn: 1, state: POND, actionsLeft: 10, lastInvalid: false };
const SECOND: TurnView = { turn: 2, state: POND, actionsLeft: 8, lastReward: -0.2, lastInvalid: false };

t.test('the system message describes the task, the symbols, the actions and the caps', async t => {
  const text = chatPrompt(LAKE).wording.system();
  t.match(text, /^Cross the lake\.\n/);
  t.match(text, /P you, _ ice, O hole/);
  t.match(text, /Left, Down, Right, Up/);
  t.match(text, /up to 2 actions, separated by \|\|/);
  const bandit = chatPrompt(BANDIT).wording.system();
  t.match(bandit, /the name of an arm/);
  t.match(bandit, /one action/);
  t.notMatch(bandit, /Symbols|\{|undefined/);
});

t.test('a turn shows reward, number, state, actions left, form and length limit', async t => {
  const { wording } = chatPrompt(LAKE);
  const first = wording.turn(FIRST);
  t.notMatch(first, /earned|\{|undefined/);
  t.match(first, `Turn 1. The state is:\n${POND}\nYou have 10 actions left.`);
  t.match(first, '<think> your reasoning </think><answer> Left || Down </answer>');
  t.match(first, 'at most 8 tokens');
  const second = wording.turn(SECOND);
  t.match(second, /^Your last turn earned -0\.2\./);
  t.match(wording.turn({ ...SECOND, lastInvalid: true }), 'no valid action, so nothing has changed');
  t.notMatch(chatPrompt({ ...LAKE, think: false }).wording.turn(FIRST), '<think>');
});

t.test(
  'without a list of actions the form shows a real one, as an example; one of a thing is singular',
  async t => {
    const description = { ...BANDIT.description, actions: undefined, exampleAction: 'Stuntman' };
    const { wording } = chatPrompt({ ...BANDIT, think: false, responseLength: 1, description });
    const text = wording.turn({ turn: 1, state: 'Smuggler or Gardener', actionsLeft: 1, lastInvalid: false });
    t.match(
      text,
      'You have 1 action left. Reply in this form, with your own action in place of the example: ',
    );
    t.match(text, /<answer> Stuntman <\/answer>\nUse at most 1 token\.$/);
    t.match(wording.system(), 'An episode has at most 1 turn and 1 action.');
  },
);

/** Every response that a grammar allows, as its tokens. */
function responsesOf({ start, states }: TokenGrammar): number[][] {
  const found: number[][] = [];
  const walk = (state: number, ids: readonly number[]): void => {
    const { tokens, next } = states[state];
    if (tokens.length === 0) found.push([...ids]);
    for (const [i, token] of tokens.entries()) walk(next[i], [...ids, token]);
  };
  walk(start, []);
  return found;
}

for (const file of ['models/qwen2-tiny', 'models/tokenizers/mistral', 'models/tokenizers/gemma2']) {
  t.test(
    `${file}: a chat response can be constrained to the listed actions, in the model's own tokens`,
    async t => {
      const tokenizer = await loadTokenizer(join(MODELS, '..', file));
      // Templates of other models refuse system messages.
      const chatting = {
        chatTemplate: PLAIN,
        files: tokenizer.files,
        vocabularySize: tokenizer.vocabularySize,
        longestToken: tokenizer.longestToken,
        words: tokenizer.words,
        encode: tokenizer.encode.bind(tokenizer),
        decode: tokenizer.decode.bind(tokenizer),
        idOf: tokenizer.idOf.bind(tokenizer),
      };
      for (const think of [false, true]) {
        const exampleActions = ['1', '10', '100', 'go north', 'go north-east', 'né'];
        const description = { ...BANDIT.description, actions: undefined, exampleActions };
        const task = { ...LAKE, think, responseLength: 40, description };
        const prompt = chatPrompt(task, chatting);
        const said = responsesOf(prompt.tokens!.grammar!).map(ids => {
          const { actions, wellFormed } = parseResponse(prompt.prime + tokenizer.decode(ids), prompt.format);
          t.ok(wellFormed);
          return actions.join(' || ');
        });
        const pairs = exampleActions.flatMap(a => exampleActions.map(b => `${a} || ${b}`));
        t.same(said.sort(), [...exampleActions, ...pairs].sort());
        t.throws(
          () => chatPrompt({ ...task, responseLength: 3 }, chatting).tokens!.grammar,
          /has no room for/,
        );
        const many = Array.from({ length: 20_000 }, (_, i) => `take ${Math.imul(i, 2654435761)}`);
        t.equal(
          chatPrompt({ ...task, description: { ...description, exampleActions: many } }, chatting).tokens!
            .grammar,
          undefined,
        );
        const unlike = { ...description, exampleActions: ['a', 'a || b', 'a</answer>'] };
        t.same(
          responsesOf(
            chatPrompt({ ...task, maxActionsPerTurn: 1, description: unlike }, chatting).tokens!.grammar!,
          ).length,
          1,
        );
      }
    },
  );
}

for (const model of ['qwen2-tiny', 'qwen3-tiny', 'llama-tiny']) {
  t.test(`${model}: appended turns read like the model's own chat template`, async t => {
    const tokenizer = await loadTokenizer(join(MODELS, model));
    const prompt = chatPrompt(LAKE, tokenizer);
    const tokens = prompt.tokens!;
    const said = ' I go\n</think><answer> Up </answer>';
    const end = tokens.stopTokenIds[0];
    for (const sampled of [tokenizer.encode(said), [...tokenizer.encode(said), end]]) {
      const ids = [
        ...tokens.opening(),
        ...tokens.turn(FIRST),
        ...sampled,
        ...tokens.close(sampled),
        ...tokens.turn(SECOND),
      ];
      const messages = promptMessages(prompt, SECOND, [{ view: FIRST, response: `<think>${said}` }]);
      const text = tokenizer.chatTemplate!.render(messages, { addGenerationPrompt: true });
      t.equal(tokenizer.decode(ids), `${text}<think>`);
    }
    t.same(tokens.ending, [end]);
    t.match(
      tokenizer.decode(tokens.folded(SECOND, [{ view: FIRST, response: 'R' }])),
      /The state was:[\s\S]*You replied: R\nThis earned -0\.2\.[\s\S]*Turn 2\. The state is:/,
    );
  });
}

t.test('a tokenizer that cannot chat is refused with the way out', async t => {
  t.throws(() => chatPrompt(LAKE, buildWordTokenizer(['a'])), /chat_template\.jinja.*`compact` prompt/);
  const qwen = await loadTokenizer(join(MODELS, 'qwen2-tiny'));
  const deaf = new ChatTemplate('{% for m in messages %}{{ m.role }}{% endfor %}', {});
  t.throws(
    () => chatPrompt(LAKE, { ...qwen, encode: () => [1], chatTemplate: deaf } as typeof qwen),
    /changes what/,
  );
});

t.test('placeholders are filled and lines without a value left out', async t => {
  t.equal(fill(['a {x}', 'b {y} {x}', '', 'c'], { x: 1, y: undefined }), 'a 1\n\nc');
  t.equal(fill(['{x}'], { x: '{y} $&' }), '{y} $&', 'values are not templates');
  t.throws(() => fill(['{z}'], { x: 1 }), /no value for \{z\}.*there are: x/);
});
