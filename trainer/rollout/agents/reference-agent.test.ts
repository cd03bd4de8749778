import t from 'tap';
import { sparseGrammar } from '../../generation/grammar.ts';
import { type AgentTurn, type EpisodeView, type ReferenceAgentSettings, referenceAgent } from './agent.ts';

const NAMES = ['Up', 'Down', 'Left', 'Right'];

interface Answer {
  readonly actions: readonly string[];
  readonly exploratory: boolean | undefined;
}

/** An agent's choices, for many seeds. */
async function replies(
  settings: ReferenceAgentSettings,
  part: Partial<EpisodeView> = {},
  grammar?: AgentTurn['grammar'],
): Promise<Answer[]> {
  const agent = referenceAgent(settings);
  const episode = {
    actionsLeft: 10,
    maxActionsPerTurn: 2,
    actionNames: { names: NAMES, start: 1 },
    compose: (actions: readonly string[]) => actions.join(),
    reference: async (policy: string, count: number) =>
      policy === 'optimal' ? [2, 'Left'].slice(0, count) : ['anything'].slice(0, count),
    ...part,
  } as EpisodeView;
  const said: Answer[] = [];
  for (let seed = 0; seed < 200; seed++) {
    const { text, exploratory } = await agent.respond({ seed, episode, grammar } as AgentTurn);
    said.push({ actions: text!.split(','), exploratory });
  }
  return said;
}

const answers = async (...asked: Parameters<typeof replies>) =>
  (await replies(...asked)).map(({ actions }) => actions);

t.test('a reference policy is asked for as many actions as a turn may hold; ids become names', async t => {
  t.ok((await answers({ policy: 'optimal' })).every(said => said.join() === 'Down,Left'));
  t.ok((await answers({ policy: 'optimal' }, { actionsLeft: 1 })).every(said => said.join() === 'Down'));
  const one = sparseGrammar('one', { start: 0, states: [{ tokens: [], next: [] }] }, 1);
  t.ok((await answers({ policy: 'optimal' }, {}, one)).every(said => said.join() === 'Down'));
});

t.test('random actions are uniform; their number varies or is full', async t => {
  const varied = await answers({ policy: 'random' });
  const lengths = varied.map(said => said.length);
  t.ok(
    lengths.filter(length => length === 1).length > 70 && lengths.filter(length => length === 2).length > 70,
  );
  for (const name of NAMES) t.ok(varied.flat().filter(said => said === name).length > 40, name);
  const full = await answers({ policy: 'random', randomCount: 'full' });
  t.ok(full.every(said => said.length === 2));
  t.same(await answers({ policy: 'random' }), varied, 'the same seeds, the same actions');
});

t.test(
  'a share of turns is random, which is said of them; random play as a whole is not exploratory',
  async t => {
    const said = await replies({ policy: 'optimal', randomTurns: 0.3 });
    const optimal = said.filter(({ exploratory }) => !exploratory);
    t.ok(optimal.length > 110 && optimal.length < 175, String(optimal.length));
    t.ok(optimal.every(({ actions }) => actions.join() === 'Down,Left'));
    const stuck = await replies({ policy: 'optimal' }, { reference: async () => [] });
    t.ok(stuck.every(({ exploratory }) => exploratory));
    const mistaken = { policy: 'optimal', randomTurns: 0.3, learnRandomTurns: true };
    for (const player of [{ policy: 'random' }, mistaken]) {
      t.notOk((await replies(player)).some(({ exploratory }) => exploratory));
    }
  },
);

t.test('without a plan the reference agent falls back to the environment or chance', async t => {
  const stuck = await answers({ policy: 'optimal' }, { reference: async () => [] });
  t.ok(stuck.flat().every(action => NAMES.includes(action)));
  const free = await answers({ policy: 'random' }, { actionNames: undefined });
  t.ok(free.every(said => said.join() === 'anything'));
  await t.rejects(
    answers({ policy: 'optimal' }, { reference: async () => [9] }),
    /gave 9, which is not an action/,
  );
});

t.test(
  'where actions have no names, random ones come from the examples; JSON is written as text',
  async t => {
    const reference = async () => t.fail('the environment is not asked') as never;
    const texts = { actionNames: undefined, exampleActions: ['1', '2'], reference };
    const said = (await answers({ policy: 'random' }, texts)).flat();
    t.same(new Set(said), new Set(['1', '2']));
    const valid = await answers({ policy: 'random' }, { validActions: ['Up', 'Left'], reference });
    t.ok(valid.every(actions => actions.length === 1));
    t.same(new Set(valid.flat()), new Set(['Up', 'Left']), 'those that are valid now come first');
    const json = { actionNames: undefined, jsonActions: true, reference: async () => [{ say: 1 }] };
    t.same(new Set((await answers({ policy: 'optimal' }, json)).flat()), new Set(['{"say":1}']));
  },
);
