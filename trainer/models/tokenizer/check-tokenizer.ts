import type { JsonObject } from '../../../shared/json.ts';

/** Greatest size of a vocabulary, sixteen times that of the largest published ones. */
export const MAX_VOCABULARY = 2 ** 22;
/** Decoding looks through the added tokens for each token; published models have some thousands. */
const MAX_ADDED_TOKENS = 2 ** 14;
const MAX_DECODERS = 16;

/**
 * Refuses a `tokenizer.json` that `@huggingface/tokenizers` would encode to other ids than Python does, and one that would
 * take the memory or hold up the program: ids far beyond any vocabulary, decoders that match patterns or lengthen texts.
 * Patterns of encoding are not judged here; texts of others are encoded on a thread with a time limit.
 * @throws Error naming the file and the part
 */
export function checkTokenizer(tokenizer: JsonObject, file: string): void {
  const model = objectOr(tokenizer.model, {});
  if (model.type === 'Unigram' && model.byte_fallback === true) {
    throw new Error(
      `${file}: a Unigram model with byte_fallback is not supported; BPE with byte_fallback is`,
    );
  }
  if (model.type !== 'Unigram') {
    for (const [token, id] of Object.entries(objectOr(model.vocab, {}))) checkId(token, id, file);
  }
  checkAddedTokens(tokenizer.added_tokens ?? [], file);
  checkDecoders(tokenizer.decoder, file);
}

function checkAddedTokens(added: unknown, file: string): void {
  if (!Array.isArray(added) || added.length > MAX_ADDED_TOKENS) {
    throw new Error(`${file}: added_tokens must be a list of at most ${MAX_ADDED_TOKENS} tokens`);
  }
  for (const entry of added) {
    const { content, id, single_word } = objectOr(entry, {});
    if (typeof content !== 'string') {
      throw new Error(`${file}: an added token must have its text as content, got ${JSON.stringify(entry)}`);
    }
    checkId(content, id, file);
    if (single_word !== true) continue;
    throw new Error(
      `${file}: the added token ${JSON.stringify(content)} is single_word, which is not supported`,
    );
  }
}

function checkId(token: string, id: unknown, file: string): void {
  if (Number.isInteger(id) && (id as number) >= 0 && (id as number) < MAX_VOCABULARY) return;
  throw new Error(
    `${file}: the id of the token ${JSON.stringify(token)} must be an integer from 0 to ${MAX_VOCABULARY - 1}, got ${JSON.stringify(id)}`,
  );
}

/** Responses are decoded in the program itself, token by token: each decoder must take time and room by the tokens' lengths. */
function checkDecoders(decoder: unknown, file: string): void {
  const open: unknown[] = [decoder];
  let count = 0;
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (next === null) continue;
    count++;
    const { type, decoders, pattern, content, replacement, suffix } = objectOr(next, {});
    if (count > MAX_DECODERS || (decoders !== undefined && !Array.isArray(decoders))) {
      throw new Error(`${file}: decoder must be a decoder, or a sequence of at most ${MAX_DECODERS}`);
    }
    open.push(...((decoders as unknown[] | undefined) ?? []));
    const replaced = objectOr(pattern, {}).String;
    const lengthens =
      (type === 'Replace' &&
        (typeof replaced !== 'string' || replaced.length < String(content ?? '').length)) ||
      (type === 'Metaspace' && replacement === '') ||
      (type === 'BPEDecoder' && suffix === '');
    if (!lengthens) continue;
    throw new Error(
      `${file}: the decoder ${JSON.stringify(next).slice(0, 200)} is not supported: a decoder may replace a text by one that is not longer`,
    );
  }
}

function objectOr(value: unknown, fallback: JsonObject): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as JsonObject)
    : fallback;
}
