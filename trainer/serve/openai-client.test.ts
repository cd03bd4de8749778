import t, { type Test } from 'tap';
import { Random } from '../../shared/random.ts';
import { lacksPython, runPython } from '../../test/python.test-data.ts';
import { goldenFolder, startServer } from './serve.test-data.ts';

/** The fields of OpenAI's API and vLLM's through the Python package openai, against distributions computed here. */
const PROMPT = [5, 9, 17, 23, 4, 31, 8, 12];
const TEMPERATURE = 0.8;
const CHOICES = 32;
const SEED = 100;

interface Choice {
  readonly text: string;
  readonly message: { readonly content: string };
  readonly delta: { readonly content: string | null };
  readonly token_ids: number[];
  readonly finish_reason: string | null;
  readonly logprobs: ReturnType<typeof JSON.parse>;
}

interface Reply {
  readonly choices: Choice[];
  readonly usage: { readonly completion_tokens: number } | null;
}

interface Request {
  readonly route: 'chat' | 'text';
  readonly body: Readonly<Record<string, unknown>>;
  readonly extra?: Readonly<Record<string, unknown>>;
}

t.test('the Python package openai', { skip: lacksPython('openai') }, async t => {
  const server = await startServer(t, goldenFolder('qwen2-tiny'), { policy: { workers: 1 } });
  const { policy } = server.models.base;
  const program = new URL('openai-client.test-data.py', import.meta.url);
  const ask = async (requests: readonly Request[]) =>
    (await runPython(program, server.url, JSON.stringify(requests))) as unknown as (Reply & Reply[])[];

  /** log p of each next token after the prompt and some tokens. */
  const nextLogProbs = async (after: readonly (readonly number[])[], tokens: readonly number[]) =>
    policy.scoreContinuations(
      after.map(ids => ({
        prompt: Int32Array.from([...PROMPT, ...ids]),
        continuations: tokens.map(id => Int32Array.of(id)),
      })),
    );
  const all = Array.from({ length: policy.vocabularySize }, (_, id) => id);
  const [plain] = await nextLogProbs([[]], all);

  const text = (more: object, extra: object = {}): Request => ({
    route: 'text',
    body: {
      prompt: PROMPT,
      temperature: TEMPERATURE,
      max_tokens: 1,
      n: CHOICES,
      seed: SEED,
      logprobs: 0,
      ...more,
    },
    extra: { return_token_ids: true, ignore_eos: true, ...extra },
  });

  await t.test('samples what the seeds and the distribution say', async t => {
    const [likely] = [...all].sort((a, b) => plain[b] - plain[a]);
    const best = plain[likely];
    const bias = { [all[40]]: 4, [likely]: -3 };
    const cases: readonly [Request, (weights: Float64Array) => Float64Array][] = [
      [text({}), weights => weights],
      [
        text({}, { min_p: 0.3 }),
        weights => weights.map(one => (one < 0.3 * Math.exp(best / TEMPERATURE) ? 0 : one)),
      ],
      [text({}, { top_k: 5 }), weights => cut(weights, 5)],
      [
        text({ logit_bias: bias }),
        weights =>
          weights.map((one, id) => one * Math.exp(((bias as Record<number, number>)[id] ?? 0) / TEMPERATURE)),
      ],
    ];
    const replies = await ask(cases.map(([request]) => request));
    cases.forEach(([request, change], i) => {
      const weights = change(plain.map(logProb => Math.exp(logProb / TEMPERATURE)));
      const expected = replies[i].choices.map((_, choice) =>
        sampled(weights, Random.fromSeed(SEED + choice)),
      );
      const asked = JSON.stringify(request.extra) + JSON.stringify(request.body.logit_bias ?? '');
      t.same(counts(replies[i].choices.map(({ token_ids }) => token_ids[0])), counts(expected), asked);
      const total = weights.reduce((sum, one) => sum + one, 0);
      replies[i].choices.forEach(({ logprobs, token_ids: [id] }) => {
        near(t, logprobs.token_logprobs[0], Math.log(weights[id] / total), asked);
      });
    });
  });

  await t.test('penalizes tokens by how often they were sampled', async t => {
    const pair = [60, 61];
    const prefixes = [[], [60], [61], [60, 60], [60, 61], [61, 60], [61, 61]];
    const logProbs = await nextLogProbs(prefixes, pair);
    const [frequency, presence] = [0.9, 0.4];
    const penalties = { frequency_penalty: frequency, presence_penalty: presence };
    const [reply] = await ask([text({ ...penalties, max_tokens: 3, logit_bias: { 60: 80, 61: 80 } })]);
    const expected = reply.choices.map((_, choice) => {
      const rng = Random.fromSeed(SEED + choice);
      const tokens: number[] = [];
      for (let at = 0; at < 3; at++) {
        const prefix = prefixes.findIndex(ids => ids.join() === tokens.join());
        const weights = pair.map((id, i) => {
          const count = tokens.filter(token => token === id).length;
          const penalty = frequency * count + (count > 0 ? presence : 0);
          return Math.exp((logProbs[prefix][i] - penalty) / TEMPERATURE);
        });
        tokens.push(pair[sampled(Float64Array.from(weights), rng)]);
      }
      return tokens;
    });
    t.same(
      counts(reply.choices.map(({ token_ids }) => token_ids.join())),
      counts(expected.map(ids => ids.join())),
    );
  });

  await t.test('each of n choices equals a request with its seed alone, streamed or not', async t => {
    const more = { n: 3, max_tokens: 12 };
    const streamed = { ...more, stream: true, stream_options: { include_usage: true } };
    const alone = [0, 1, 2].map(i => text({ n: 1, max_tokens: 12, seed: SEED + i }));
    const [whole, chunks, ...single] = await ask([text(more), text(streamed), ...alone]);
    t.same(
      whole.choices.map(({ token_ids }) => token_ids),
      single.map(({ choices }) => choices[0].token_ids),
    );
    const pieces = chunks.flatMap(({ choices }) => choices as unknown as (Choice & { index: number })[]);
    whole.choices.forEach((choice, i) => {
      const own = pieces.filter(({ index }) => index === i);
      t.equal(own.map(piece => piece.text).join(''), choice.text);
      t.same(
        own.flatMap(piece => piece.token_ids),
        choice.token_ids,
      );
      t.same(
        own.flatMap(piece => piece.logprobs?.token_logprobs ?? []),
        choice.logprobs.token_logprobs,
      );
    });
    t.same(chunks.at(-1)!.choices, []);
    t.same(chunks.at(-1)!.usage, whole.usage);
    t.equal(whole.usage!.completion_tokens, 36);
    t.ok(
      chunks.slice(0, -1).every(({ usage }) => !usage),
      'usage comes once',
    );
  });

  await t.test('ends before a stop string, in completions and chat', async t => {
    const greedy = { temperature: 0, n: 1, max_tokens: 24 };
    const chat = { messages: [{ role: 'user', content: 'Which way?' }], temperature: 0, max_tokens: 24 };
    const top = { logprobs: true, top_logprobs: 3 };
    const [whole, said] = await ask([text(greedy), { route: 'chat', body: { ...chat, ...top } }]);
    const stopOf = (all: string) => all.slice(4, 7);
    const [before, spoken] = [whole.choices[0].text, said.choices[0].message.content];
    const [ended, silent, streamed] = await ask([
      text({ ...greedy, stop: stopOf(before) }),
      { route: 'chat', body: { ...chat, stop: [stopOf(spoken)] } },
      { route: 'chat', body: { ...chat, stop: [stopOf(spoken)], stream: true } },
    ]);
    const until = (all: string) => all.slice(0, all.indexOf(stopOf(all)));
    t.equal(ended.choices[0].text, until(before));
    t.equal(ended.choices[0].finish_reason, 'stop');
    t.equal(silent.choices[0].message.content, until(spoken));
    t.equal(silent.choices[0].finish_reason, 'stop');
    t.equal(streamed.map(({ choices }) => choices[0]?.delta.content ?? '').join(''), until(spoken));
    for (const { logprob, top_logprobs } of said.choices[0].logprobs.content) {
      t.equal(top_logprobs.length, 3);
      t.equal(top_logprobs[0].logprob, logprob, 'greedy takes the most probable token');
    }
  });
});

function cut(weights: Float64Array, most: number): Float64Array {
  const least = [...weights].sort((a, b) => b - a)[most - 1];
  return weights.map(one => (one < least ? 0 : one));
}

/** The sampler's choice: the first token at which the sum of weights exceeds the number. */
function sampled(weights: Float64Array, rng: Random): number {
  let rest = rng.float() * weights.reduce((sum, one) => sum + one, 0);
  return weights.findIndex(weight => {
    rest -= weight;
    return weight > 0 && rest < 0;
  });
}

function counts(values: readonly (number | string)[]): Record<string, number> {
  const found: Record<string, number> = {};
  for (const value of [...values].sort()) found[value] = (found[value] ?? 0) + 1;
  return found;
}

function near(t: Test, value: number, wanted: number, label: string): void {
  if (!(Math.abs(value - wanted) < 1e-4)) t.fail(`${label}: ${value}, expected ${wanted}`);
}
