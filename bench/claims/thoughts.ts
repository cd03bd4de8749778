import { readFileSync, writeFileSync } from 'node:fs';

interface Message {
  readonly role: string;
  readonly content: string;
}

/** Words of a thought at most. */
const PLAN_LENGTH = 4;
const ANSWER = /<answer>(.*?)<\/answer>/s;

/**
 * Conversations of a solver with its plan as thoughts: at each turn the actions that it is about to take, this turn's first, at
 * most {@link PLAN_LENGTH} words.
 * @param solved JSON Lines as the command `demonstrations` writes them, with empty thoughts
 */
export function writePlannedThoughts(solved: string, out: string): void {
  const lines = readFileSync(solved, 'utf8').trim().split('\n');
  const thoughtful = lines.map(line => {
    const { messages } = JSON.parse(line) as { readonly messages: readonly Message[] };
    return JSON.stringify({ messages: withPlans(messages) });
  });
  writeFileSync(out, `${thoughtful.join('\n')}\n`);
}

/** The messages with a thought in each of the assistant's. */
export function withPlans(messages: readonly Message[]): Message[] {
  const actions = messages.map(({ role, content }) =>
    role === 'assistant' ? (ANSWER.exec(content)?.[1] ?? '').split('||').filter(Boolean) : [],
  );
  return messages.map((message, i) => {
    if (message.role !== 'assistant') return message;
    const plan = actions.slice(i).flat().slice(0, PLAN_LENGTH);
    return { ...message, content: message.content.replace('<think>', `<think>${plan.join('')}`) };
  });
}
