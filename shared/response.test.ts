import { readFileSync } from 'node:fs';
import t from 'tap';
import { isPenalized, mapActions, parseResponse } from './response.ts';

interface GoldenReply {
  llm_response: string;
  actions: string[];
}

interface GoldenRow {
  response: string;
  think_max2: GoldenReply;
  nothink_max2: GoldenReply;
  think_max5: GoldenReply;
  sokoban_mapped: number[];
}

const golden = JSON.parse(
  readFileSync(new URL('../test/golden/response_parsing.json', import.meta.url), 'utf8'),
) as { rows: GoldenRow[] };
const SOKOBAN = { names: ['Up', 'Down', 'Left', 'Right'], start: 1 };

t.test('the golden responses, read as the reference program reads them', async t => {
  for (const row of golden.rows) {
    const read = (think: boolean, maxActions: number): GoldenReply => {
      const parsed = parseResponse(row.response, { think, maxActions, acceptShortTag: false });
      return { llm_response: parsed.cleaned, actions: [...parsed.actions] };
    };
    t.same(read(true, 2), row.think_max2, row.response);
    t.same(read(false, 2), row.nothink_max2, row.response);
    t.same(read(true, 5), row.think_max5, row.response);
    t.same(mapActions(row.think_max2.actions, SOKOBAN), row.sokoban_mapped, row.response);
  }
});

t.test('by default the golden responses are read alike except for the short tag', async t => {
  for (const row of golden.rows) {
    if (row.response.includes('<ans>')) continue;
    t.same(parseResponse(row.response, { think: true, maxActions: 2 }).actions, row.think_max2.actions);
    t.same(parseResponse(row.response, { think: false, maxActions: 2 }).actions, row.nothink_max2.actions);
  }
});

t.test('the short tag is accepted', async t => {
  const parsed = parseResponse('<think>x</think><ans>Up</ans>', { think: true, maxActions: 2 });
  t.same(parsed, {
    wellFormed: true,
    cleaned: '<think>x</think><answer>Up</answer>',
    thinking: 'x',
    actions: ['Up'],
  });
  t.same(parseResponse('<ans>Up</answer>', { think: false, maxActions: 2 }).actions, [], 'tags must pair up');
});

t.test('actions past the cap are dropped, without a penalty', async t => {
  const parsed = parseResponse('<think></think><answer>Up||Down||Left</answer>', {
    think: true,
    maxActions: 2,
  });
  t.same(parsed.actions, ['Up', 'Down']);
  t.equal(parsed.cleaned, '<think></think><answer>Up || Down</answer>');
  t.notOk(isPenalized(parsed.actions.length, mapActions(parsed.actions, SOKOBAN).length));
});

t.test('the penalty is due for an unknown action and for none at all', async t => {
  t.ok(isPenalized(0, 0));
  t.ok(isPenalized(2, 1));
  t.ok(isPenalized(1, 0));
  t.notOk(isPenalized(2, 2));
});

t.test('free text passes as written', async t => {
  t.same(mapActions(['(3 + 4) * 2'], undefined), ['(3 + 4) * 2']);
});
