import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { stringify } from 'yaml';
import { serveHttp } from '../../../test/local-server.test-data.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { ChatMessage } from '../../models/tokenizer/tokenizer.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { latestCheckpoint, readCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { tinySettings, trainTiny } from '../../training/runs.test-data.ts';
import { openPolicy } from '../../training/setup/open-policy.ts';
import { openRunContext } from '../../training/setup/run-context.ts';
import { evaluate } from './evaluate.ts';
import type { EvaluationRow } from './evaluation.ts';

interface Written {
  readonly rows: EvaluationRow[];
  readonly usage: { readonly [key: string]: unknown }[];
}

const MAX_MS = 900_000;

/** A chat model that always goes the same way. */
async function chatModel(t: Test, answer: string) {
  const conversations: ChatMessage[][] = [];
  const { url } = await serveHttp(t, (_request, response, text) => {
    conversations.push(JSON.parse(text).messages);
    const choices = [{ message: { content: answer }, finish_reason: 'stop' }];
    response.end(JSON.stringify({ choices, usage: { prompt_tokens: 100, completion_tokens: 10 } }));
  });
  return { url: `${url}/v1`, conversations };
}

t.test('players are compared on the same levels, and everything is written', { timeout: MAX_MS }, async t => {
  const [server] = (await serve(t)).servers;
  const folder = t.testdir();
  const config = join(folder, 'lakes.yaml');
  writeFileSync(
    config,
    stringify(tinySettings(server.name, folder, 'lakes', { validation: { episodes: 12 } })),
  );
  const model = await chatModel(t, '<answer>Right || Down</answer> or <answer>Up</answer>');
  const output = join(folder, 'out');
  const printed = t.capture(console, 'log');
  const place = [
    'rollout.prompt=chat',
    'rollout.stop_strings=[</answer>]',
    `endpoint.url=${model.url}`,
    'endpoint.model=tiny',
    'endpoint.price_per_million={prompt: 1, completion: 10}',
    'validation.temperature=0.5',
  ];
  const policy = ['endpoint', 'random', 'optimal'];
  t.equal(await evaluate(config, place, { policy, attempts: 3, output, quiet: true }), 0);
  t.match(printed()[0].args[0], /pass@k %/);

  const { rows, usage } = JSON.parse(readFileSync(join(output, 'evaluation.json'), 'utf8')) as Written;
  t.same(
    rows.map(row => [row.policy, row.mode, row.episodes]),
    [
      ['endpoint', 'greedy', 12],
      ['endpoint', 'temperature 0.5', 36],
      ['random', 'reference', 36],
      ['optimal', 'reference', 12],
    ],
  );
  const [greedy, , random, optimal] = rows;
  t.equal(greedy.format_valid, 1);
  t.equal(greedy.pass_at, undefined);
  t.same(Object.keys(random.pass_at!), ['1', '2', '3']);
  t.ok(Math.abs(random.pass_at![1] - random.success) < 1e-12 && random.pass_at![3] >= random.pass_at![1]);
  t.ok(optimal.success > greedy.success);
  const asked = model.conversations.length;
  t.match(usage, [
    { policy: 'endpoint', model: 'tiny', requests: asked, retries: 0, prompt_tokens: 100 * asked },
  ]);
  t.ok(Math.abs((usage[0].cost as number) - (asked * (100 + 100)) / 1e6) < 1e-12);
  t.same(readdirSync(output).sort(), [
    'endpoint-greedy.jsonl',
    'endpoint-temperature_0.5.jsonl',
    'evaluation.json',
    'evaluation.txt',
    'optimal-reference.jsonl',
    'random-reference.jsonl',
  ]);
  t.equal(readJsonLines(join(output, 'random-reference.jsonl')).length, 36);
  const [first] = readJsonLines(join(output, 'endpoint-greedy.jsonl'));
  t.match(first, { turns: [{ llm_raw_response: /^<answer>Right \|\| Down<\/answer>$/ }] });

  const longest = model.conversations.toSorted((a, b) => b.length - a.length)[0];
  t.same(
    longest.slice(0, 4).map(({ role }) => role),
    ['system', 'user', 'assistant', 'user'],
  );
  t.equal(longest[2].content, '<answer>Right || Down</answer>');
});

t.test('a run is evaluated from its folder; what is missing is said', { timeout: MAX_MS }, async t => {
  const [server] = (await serve(t)).servers;
  const folder = t.testdir();
  const headless = { training: { steps: 0 }, policy: { value_head: false } };
  const run = await trainTiny(tinySettings(server.name, folder, 'run', headless));
  const printed = t.capture(console, 'log');
  t.equal(
    await evaluate(run.path, ['validation.episodes=6'], { policy: ['checkpoint'], json: true, quiet: true }),
    0,
  );
  const rows = JSON.parse(printed()[0].args[0]) as EvaluationRow[];
  const [kept] = readdirSync(run.evaluations);
  t.match(JSON.parse(readFileSync(join(run.evaluations, kept), 'utf8')), {
    command: `evaluate ${run.path} validation.episodes=6 --policy checkpoint`,
    rows: [{ tag: 'Lake', trained: { step: 0 } }, { trained: { step: 0 } }],
  });
  t.same(
    rows.map(({ mode, episodes }) => [mode, episodes]),
    [
      ['greedy', 6],
      ['temperature 0.5', 6],
    ],
  );
  t.ok(rows[0].response_length! > 0);
  const evaluated = printed().length;
  for (const head of [true, false]) {
    const overrides = [`policy.value_head=${head}`, 'validation.episodes=6'];
    t.equal(await evaluate(run.path, overrides, { policy: ['checkpoint'], json: true, quiet: true }), 0);
  }
  for (const { args } of printed().slice(evaluated)) {
    t.same(JSON.parse(args[0]), rows, 'plays alike with and without a value head in the config');
  }
  rmSync(run.evaluations, { recursive: true });
  writeFileSync(run.evaluations, 'not a folder');
  const before = printed().length;
  await t.rejects(
    evaluate(run.path, ['validation.episodes=6'], { policy: ['random'], json: true, quiet: true }),
    { code: 'EEXIST' },
  );
  t.match(JSON.parse(printed()[before].args[0]), [{ policy: 'random' }], 'printed before it is written');
  const config = join(folder, 'config.yaml');
  writeFileSync(config, stringify(tinySettings(server.name, folder, 'other', headless)));
  const weights = latestCheckpoint(run)!.policy;
  const from = printed().length;
  for (const [overrides, policy] of [
    [[`policy.init=${weights}`], 'checkpoint'],
    [[], weights],
  ] as const) {
    const settings = [...overrides, 'validation.episodes=6'];
    t.equal(await evaluate(config, settings, { policy: [policy], json: true, quiet: true }), 0);
  }
  for (const { args } of printed().slice(from)) {
    const named = rows.map(row => ({ ...row, policy: weights }));
    t.same(JSON.parse(args[0]), named, 'a config plays the model that it or --policy names');
  }
  const refused = (policy: string, ...overrides: string[]) =>
    evaluate(run.path, overrides, { policy: [policy], quiet: true });
  await t.rejects(refused('endpoint'), /endpoint\.url=http/);
  await t.rejects(refused('endpoint', 'endpoint={url: "http://x", model: y}'), /rollout\.prompt=chat/);
  const keyed = 'endpoint={url: "http://x", model: y, api_key_env: RAGEN_TEST_NO_SUCH_KEY}';
  await t.rejects(refused('endpoint', 'rollout.prompt=chat', keyed), /RAGEN_TEST_NO_SUCH_KEY is not set/);
  await t.rejects(refused('oracle'), /no such reference policy; it has random, optimal/);
  await t.rejects(evaluate(join(folder, 'none'), [], { policy: ['random'] }), /does not exist/);
});

t.test(
  "each checkpoint of a run is credited with its own training, others' with none",
  {
    timeout: MAX_MS,
  },
  async t => {
    const [server] = (await serve(t)).servers;
    const folder = t.testdir();
    const training = { steps: 2, checkpoint_every: 1, validate_every: 1, keep_best: true };
    const run = await trainTiny(tinySettings(server.name, folder, 'run', { training }));
    const other = join(folder, 'other');
    cpSync(run.path, other, { recursive: true });
    const policy = [
      'checkpoint',
      join(run.checkpoints, 'step-000001/policy'),
      join(run.best, 'policy'),
      join(other, 'checkpoints/step-000001/policy'),
      'random',
    ];
    t.capture(console, 'log');
    const overrides = ['validation.episodes=2', 'validation.temperature=0'];
    t.equal(await evaluate(run.path, overrides, { policy, attempts: 2, quiet: true }), 0);
    const [kept] = readdirSync(run.evaluations);
    const { command, rows } = JSON.parse(readFileSync(join(run.evaluations, kept), 'utf8'));
    t.equal(
      command,
      `evaluate ${run.path} ${overrides.join(' ')} ${policy.map(name => `--policy ${name}`).join(' ')} --attempts 2`,
    );
    const trained = (name: string) => {
      const { step, sampledTokens, seconds } = readCheckpoint(join(run.checkpoints, name)).state;
      return { step, sampled_tokens: sampledTokens, seconds };
    };
    t.not(trained('step-000001').sampled_tokens, trained('step-000002').sampled_tokens);
    t.same(
      rows.map((row: { readonly trained?: object }) => row.trained),
      [trained('step-000002'), trained('step-000001'), trained('best'), undefined, undefined],
    );
  },
);

interface PlayedEpisode {
  readonly samples: readonly {
    readonly token_ids: readonly number[];
    readonly mask: readonly number[];
    readonly log_probs: readonly number[];
  }[];
}

t.test(
  'an adapter plays over a base stored as in training, or as settings say',
  { timeout: MAX_MS },
  async t => {
    const [{ name: url }] = (await serve(t)).servers;
    const folder = t.testdir();
    const sizes = { hidden_size: 64, intermediate_size: 64, value_head: false };
    const setBase = { policy: sizes, training: { steps: 0 } };
    const { policy: init } = latestCheckpoint(await trainTiny(tinySettings(url, folder, 'base', setBase)))!;
    const lora = { rank: 2, alpha: 4, quantization: 'nf4' };
    const settings = tinySettings(url, folder, 'run', {
      policy: { ...sizes, init, lora },
      optimizer: { learning_rate: 0.01 },
      training: { steps: 1 },
      validation: { episodes: 4, temperature: 1 },
    });
    const run = await trainTiny(settings);
    const adapter = latestCheckpoint(run)!.policy;
    const context = await openRunContext(settings, adapter, () => {}, new AbortController().signal);
    t.teardown(() => context.close());
    t.capture(console, 'log');
    /** Largest difference of a sampled token's log-probability when the adapter scores it over a base stored so. */
    const difference = async (overrides: readonly string[], quantization: 'nf4' | null) => {
      const output = join(folder, 'out');
      t.equal(await evaluate(run.path, overrides, { policy: ['checkpoint'], output, quiet: true }), 0);
      const episodes = readJsonLines(
        join(output, 'checkpoint-temperature_1.jsonl'),
      ) as unknown as PlayedEpisode[];
      const samples = episodes.flatMap(episode => episode.samples);
      const stored: RunSettings = {
        ...settings,
        policy: { ...settings.policy, lora: { ...settings.policy.lora!, quantization } },
      };
      const policy = await openPolicy(stored, context, adapter);
      const scores = await policy.score(
        samples.map(({ token_ids, mask }) => ({
          tokenIds: Int32Array.from(token_ids),
          lossMask: Uint8Array.from(mask),
        })),
      );
      await policy.close();
      return Math.max(
        ...samples.flatMap(({ mask, log_probs }, i) =>
          mask.flatMap((learned, at) =>
            learned === 1 ? [Math.abs(log_probs[at] - scores[i].logProbs[at])] : [],
          ),
        ),
      );
    };
    t.ok((await difference([], 'nf4')) < 1e-4);
    t.ok((await difference([], null)) > 1e-2, 'over the float32 base it would play differently');
    t.ok((await difference(['policy.lora.quantization=null'], null)) < 1e-4);
  },
);
