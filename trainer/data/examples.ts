import { existsSync } from 'node:fs';
import { Random } from '../../shared/random.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { type ExampleMessage, type Learned, tokenizeConversation } from '../prompts/conversation.ts';
import { readGivenJsonLines } from '../tracking/jsonlines.ts';
import type { Demonstration } from './demonstrations.ts';

/** Conversations to learn from, as tokens. */
export interface Examples {
  readonly examples: readonly Demonstration[];
  /** Conversations left out because they are longer than the policy's context. */
  readonly tooLong: number;
}

const ROLES: readonly string[] = ['system', 'user', 'assistant'];

/**
 * Reads conversations from JSON Lines files, `{"messages": [{"role", "content", "weight"?}, …]}` a line; other keys are of
 * no concern. A message of weight 0 is not learned.
 * @param prime see {@link tokenizeConversation}
 * @throws Error naming the file and line of an example that cannot be used
 */
export function readExamples(
  files: readonly string[],
  tokenizer: Tokenizer,
  options: { readonly prime: string; readonly maxLength: number; readonly learned?: Learned },
): Examples {
  const all = files.flatMap(file => {
    if (!existsSync(file)) throw new Error(`${file} does not exist; warm_start.files names JSON Lines files`);
    return readGivenJsonLines(file).map(({ line, value }) => {
      try {
        return tokenizeConversation(messagesOf(value), tokenizer, options.prime, options.learned);
      } catch (error) {
        throw new Error(`${file}:${line}: ${(error as Error).message}`, { cause: error });
      }
    });
  });
  const examples = all.filter(({ tokenIds }) => tokenIds.length <= options.maxLength);
  if (examples.length === 0) {
    throw new Error(
      `${files.join(', ')}: none of ${all.length} conversations fits a context of ${options.maxLength} tokens` +
        `${all.length > 0 ? `; the shortest has ${Math.min(...all.map(({ tokenIds }) => tokenIds.length))}: raise policy.context` : ''}`,
    );
  }
  return { examples, tooLong: all.length - examples.length };
}

/** Holds a share of the examples back, drawn at random; at least one, and not all, where the share is above 0. */
export function splitExamples<T>(
  examples: readonly T[],
  share: number,
  seed: number,
): { readonly train: readonly T[]; readonly validation: readonly T[] } {
  if (share === 0 || examples.length < 2) return { train: examples, validation: [] };
  const held = Math.min(examples.length - 1, Math.max(1, Math.round(share * examples.length)));
  const shuffled = Random.fromSeed(seed).shuffle([...examples]);
  return { train: shuffled.slice(held), validation: shuffled.slice(0, held) };
}

function messagesOf(value: unknown): readonly ExampleMessage[] {
  const { messages } = (value ?? {}) as { readonly messages?: unknown };
  if (!Array.isArray(messages)) throw new Error('an example is an object with a list of `messages`');
  messages.forEach((message, i) => {
    const { role, content, weight } = (message ?? {}) as Record<string, unknown>;
    if (!ROLES.includes(String(role))) {
      throw new Error(`message ${i} has role ${JSON.stringify(role)}; valid: ${ROLES.join(', ')}`);
    }
    if (typeof content !== 'string') throw new Error(`message ${i} has no text as its content`);
    if (weight !== undefined && weight !== 0 && weight !== 1) {
      throw new Error(`message ${i} has weight ${JSON.stringify(weight)}; it is 0 or 1`);
    }
  });
  return messages as ExampleMessage[];
}
