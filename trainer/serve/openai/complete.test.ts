import t from 'tap';
import type { StreamedToken } from '../../generation/generation.ts';
import { complete, completionTask, type EventStream, stream } from './complete.ts';
import type { LanguageModel } from './language-model.ts';

const CHOICES = 20;
const DECODE_MS = 1;

/** A model with tokens that take long to decode. */
const slow = {
  name: 'slow',
  tokenizer: {
    decode(): string {
      for (const end = performance.now() + DECODE_MS; performance.now() < end; );
      return 'x';
    },
  },
  maxSequenceLength: 100,
  vocabularySize: 10,
  stopTokenIds: [],
  fingerprint: 'slow@0',
  async generate(_request: unknown, _signal: AbortSignal, watch?: (token: StreamedToken) => void) {
    watch?.({ tokenId: 3, logProb: 0, version: 0 });
    return {
      tokenIds: Int32Array.of(3),
      logProbs: Float32Array.of(0),
      versions: Int32Array.of(0),
      finishReason: 'length',
    };
  },
} as unknown as LanguageModel;

t.test('other clients are answered while a stream of many choices is written', async t => {
  const task = completionTask({ prompt: [3], n: CHOICES, stream: true, logprobs: 1 }, slow, [[3]]);
  let others = 0;
  const count = () => {
    others++;
    timer = setImmediate(count);
  };
  let timer = setImmediate(count);
  const written: string[] = [];
  const events = { event: (json: string) => written.push(json), drained: async () => {}, end: () => {} };
  await stream(
    task,
    () => events as unknown as EventStream,
    new AbortController().signal,
    () => {},
  );
  clearImmediate(timer);
  t.ok(written.length >= CHOICES);
  t.ok(others > 1, `${others} turns of the event loop`);
});

t.test('a prompt is scored once for all choices, and no further prompt for a client that left', async t => {
  const scored: number[] = [];
  const gone = new AbortController();
  const scoring = {
    ...slow,
    async score(prompt: readonly number[]) {
      scored.push(prompt[0]);
      if (prompt[0] === 5) gone.abort(new Error('the client left'));
      return Float32Array.of(-prompt[0]);
    },
  } as unknown as LanguageModel;
  const request = { prompt: [3], n: 3, echo: true, logprobs: 1, max_tokens: 0 };
  const task = (prompts: number[][]) => completionTask(request, scoring, prompts);
  const reply = JSON.parse(await complete(task([[3], [4]]), gone.signal));
  t.same(scored, [3, 4]);
  t.same(
    reply.choices.map(
      (one: { logprobs: { token_logprobs: (number | null)[] } }) => one.logprobs.token_logprobs.length,
    ),
    [1, 1, 1, 1, 1, 1],
  );
  await t.rejects(complete(task([[5], [6]]), gone.signal), { message: 'the client left' });
  t.same(scored, [3, 4, 5]);
});
