import t from 'tap';
import { Random } from '../../shared/random.ts';
import { withThoughts } from './thoughts.ts';

const pull = (prompt: string) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: prompt },
      { role: 'assistant', content: '<think></think><answer>Test-pilot</answer>' },
    ],
  });
const PROMPT = '<1 left><text>Test-pilot or Postman';

t.test('a thought begins with both arms, and six names follow that vary', async t => {
  const lines = withThoughts(`${new Array(50).fill(pull(PROMPT)).join('\n')}\n`, Random.fromSeed(1));
  const thoughts = lines.trim().split('\n');
  for (const line of thoughts) {
    const { messages } = JSON.parse(line) as { messages: { content: string }[] };
    t.equal(messages[0].content, PROMPT);
    t.match(
      messages[1].content,
      /^<think>Test-pilotPostman([A-Z][a-z]+(-[a-z]+)?){6}<\/think><answer>Test-pilot<\/answer>$/,
    );
  }
  t.equal(new Set(thoughts).size, 50);
});

t.test('a conversation without arms is refused', async t => {
  t.throws(() => withThoughts(pull('What now?'), Random.fromSeed(1)), { message: 'no arms in "What now?"' });
});
