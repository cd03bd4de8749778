import type { FastifyInstance } from 'fastify';
import { inSlices, type Sliced } from '../../shared/slices.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import type { Capacity } from './capacity.ts';
import type { Models } from './models.ts';
import { chatPrompt } from './openai/chat-prompt.ts';
import { clientGone } from './openai/client-gone.ts';
import { badRequest } from './openai/errors.ts';
import { bodyParser } from './openai/parse.ts';
import { encoded } from './openai/prompts.ts';
import { DetokenizeRequestSchema, TokenizeRequestSchema } from './openai/schemas.ts';

const parseTokenize = bodyParser(TokenizeRequestSchema);
const parseDetokenize = bodyParser(DetokenizeRequestSchema);
/** To decode a million ids takes a second. */
const MAX_DETOKENIZED = 2 ** 17;

/** `POST /tokenize` and `/detokenize`, as vLLM has them. */
export function tokenizerRoutes(app: FastifyInstance, models: Models, capacity: Capacity): void {
  app.post('/tokenize', async (request, reply) => {
    const body = parseTokenize(request.body);
    const model = models.named(body.model ?? undefined);
    const { tokenizer, maxSequenceLength } = model;
    const { signal } = clientGone(request, reply);
    const { messages, prompt } = body;
    if ((messages === undefined) === (prompt === undefined)) {
      throw badRequest('give either prompt or messages', 'prompt');
    }
    const tokens = await capacity.during(1, async () =>
      messages === undefined
        ? encoded(prompt!, model, 'prompt', signal)
        : encoded(await chatPrompt({ ...body, messages }, model, signal), model, 'messages', signal),
    );
    return {
      count: tokens.length,
      max_model_len: maxSequenceLength,
      tokens,
      token_strs: body.return_token_strs ? await inSlices(tokenTexts(tokens, tokenizer)) : null,
    };
  });
  app.post('/detokenize', async (request, reply) => {
    const { model, tokens } = parseDetokenize(request.body);
    const { tokenizer, encoder } = models.named(model ?? undefined);
    if (tokens.length > MAX_DETOKENIZED) {
      throw badRequest(`${tokens.length} tokens are more than ${MAX_DETOKENIZED}: ask for parts`, 'tokens');
    }
    const unknown = tokens.find(id => id >= tokenizer.vocabularySize);
    if (unknown !== undefined) {
      throw badRequest(
        `token id ${unknown} is outside the vocabulary of ${tokenizer.vocabularySize}`,
        'tokens',
      );
    }
    return { prompt: await encoder.decode(tokens, clientGone(request, reply).signal) };
  });
}

function* tokenTexts(tokens: readonly number[], tokenizer: Tokenizer): Sliced<string[]> {
  const texts: string[] = [];
  for (const id of tokens) {
    texts.push(tokenizer.decode([id]));
    yield;
  }
  return texts;
}
