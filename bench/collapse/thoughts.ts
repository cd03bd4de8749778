import { PAIRS } from '../../env-server/environments/bandit/bandit.ts';
import type { Random } from '../../shared/random.ts';

interface Message {
  readonly role: string;
  readonly content: string;
}

/** Random names in a thought, behind the arms. */
const RANDOM_NAMES = 6;

/**
 * Conversations with a thought in each answer: both arms in the order of the prompt, then six names at random.
 * @param pulls JSON Lines of Bandit as the command `demonstrations` writes them, with empty thoughts
 */
export function withThoughts(pulls: string, random: Random): string {
  const lines = pulls
    .trim()
    .split('\n')
    .map(line => {
      const { messages } = JSON.parse(line) as { readonly messages: readonly Message[] };
      return JSON.stringify({
        messages: messages.map((message, i) =>
          message.role === 'assistant'
            ? { ...message, content: thinking(message.content, messages[i - 1].content, random) }
            : message,
        ),
      });
    });
  return `${lines.join('\n')}\n`;
}

function thinking(answer: string, prompt: string, random: Random): string {
  const [first, or, second] = prompt.slice(prompt.lastIndexOf('>') + 1).split(' ');
  if (or !== 'or') throw new Error(`no arms in ${JSON.stringify(prompt)}`);
  const names = Array.from({ length: RANDOM_NAMES }, () => random.choice(random.choice(PAIRS.train)));
  return answer.replace('<think>', `<think>${[first, second, ...names].join('')}`);
}
