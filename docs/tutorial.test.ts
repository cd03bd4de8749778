import { readFileSync } from 'node:fs';
import t from 'tap';
import { CANNOT_WALK, readPage, walkThrough } from '../test/walkthrough.test-data.ts';

const PAGE = 'docs/tutorial/own-environment.md';

t.test('every command of the tutorial works, and the policy learns', { skip: CANNOT_WALK }, async t => {
  t.ok((await walkThrough(t, PAGE, { otherCommands: 'run' })) >= 3);
  const metrics = readFileSync(`${t.testdirName}/runs/house-001/metrics.jsonl`, 'utf8');
  const successes = [...metrics.matchAll(/"val-env\/success":([\d.]+)/g)].map(([, value]) => Number(value));
  t.ok(successes[0] < 0.5, `random play before: ${successes[0]}`);
  t.ok(successes.at(-1)! > 0.9, `after training: ${successes.at(-1)}`);
});

t.test('the page shows the files that its commands use', async t => {
  const page = readPage(PAGE);
  t.ok(page.includes(`\`\`\`yaml\n${readPage('docs/examples/house.yaml').trim()}\n\`\`\``));
  const [, fragment] = /```json fragment\n([\s\S]*?),\n```/.exec(page)!;
  const { states } = JSON.parse(readPage('docs/examples/house.json')).definition;
  for (const [name, state] of Object.entries(JSON.parse(`{${fragment}}`))) t.same(state, states[name], name);
});
