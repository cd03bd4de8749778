import { existsSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { mergeConfig } from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { lacksPython } from '../../test/python.test-data.ts';
import { openPlayer } from '../commands/evaluate/players.ts';
import { loadTokenizer } from '../models/tokenizer/load.ts';
import { readTinkerCheckpoint } from '../policy/tinker/checkpoint.ts';
import { referenceServer } from '../policy/tinker/tinker.test-data.ts';
import { serve } from '../rollout/server.test-data.ts';
import { silentProgress } from '../tracking/progress.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import { resumeTiny, tinySettings, trainInTwo, trainingRows, trainTiny } from './runs.test-data.ts';

const missing = lacksPython('tinker', 'numpy');
const skip = missing && `${missing}: pip install tinker==0.38.0 numpy`;

/** A folder with the tokenizer of a tiny policy. */
async function tokenizerFolder(url: string, folder: string): Promise<string> {
  const run = await trainTiny(tinySettings(url, folder, 'words', { training: { steps: 0 } }));
  return latestCheckpoint(run)!.policy;
}

/** Settings of a tiny run at a Tinker server. */
const remote = (url: string, tokenizer: string, over: Json = {}): Json =>
  mergeConfig(
    {
      policy: {
        runtime: 'tinker',
        init: 'bigram',
        tokenizer,
        lora: { rank: 4 },
        value_head: false,
        tinker: { url, server: 'ragen', price_per_million: { prefill: 1, sample: 1, train: 1 } },
      },
      loss: { entropy_coefficient: 0, dual_clip: 0 },
      optimizer: { learning_rate: 0.05, warmup_iterations: 0 },
    },
    over,
  );

async function opened(t: Test) {
  const [server] = (await serve(t)).servers;
  const folder = t.testdir({ runs: {}, server: {} });
  const tokenizer = await tokenizerFolder(server.name, join(folder, 'runs'));
  const { vocabularySize } = await loadTokenizer(tokenizer);
  const tinker = await referenceServer(t, join(folder, 'server'), `vocabulary=${vocabularySize}`);
  const settings = (name: string, over: Json = {}) =>
    tinySettings(server.name, join(folder, 'runs'), name, remote(tinker.url, tokenizer, over));
  return { tinker, settings };
}

t.test('a run trains at a Tinker server, resumes from its folder, and is evaluated', { skip }, async t => {
  const { tinker, settings } = await opened(t);
  const over = {
    training: { steps: 4, checkpoint_every: 2, validate_every: 4 },
    tracking: { trajectories_every: 1 },
    warm_start: { episodes: 32, epochs: 4, learning_rate: 0.2 },
  };
  const run = await trainTiny(settings('whole', over));
  const rows = trainingRows(run);
  t.equal(rows.length, 4);
  for (const row of rows) {
    t.match(row, {
      'actor/grad_norm': Number,
      'actor/ppo_kl': Number,
      'tinker/cost': Number,
      'generation/retries': 0,
    });
    t.ok(row['tinker/sampled_tokens'] > 0 && row['tinker/trained_tokens'] > 0);
    t.notOk('actor/entropy' in row);
  }
  t.ok(
    rows[0]['generation/logprob_gap_max'] < 1e-5,
    'samples are compared with scores in the first iteration',
  );
  t.notOk('generation/logprob_gap_max' in rows[1]);
  const { policy, state } = latestCheckpoint(run)!;
  t.equal(state.step, 4);
  t.match(await readTinkerCheckpoint(policy), { base_model: 'bigram', version: 16 });
  t.notOk(existsSync(join(policy, 'model.safetensors')));

  const two = await trainInTwo(settings('two', over), 2);
  const final = (rows: ReturnType<typeof trainingRows>) =>
    rows.map(row => [row['train/return'], row['actor/grad_norm'], row['actor/pg_loss']]);
  t.ok(rows.filter(row => row['actor/grad_norm'] > 0).length >= 2);
  t.same(final(trainingRows(two)), final(rows), 'stopped and resumed, it learns the same');
  t.equal((await readTinkerCheckpoint(latestCheckpoint(two)!.policy))!.version, 16);
  t.same(Object.keys((await tinker.state()).models), [], 'every model was unloaded');

  const player = await openPlayer(policy, {
    settings: settings('whole', over),
    checkpoint: policy,
    note: () => {},
    stop: new AbortController().signal,
  });
  t.match(
    player.modes.map(({ name }) => name),
    ['greedy', /temperature/],
  );
  await player.close();
});

t.test(
  'the run says when the server is away, waits, and fails in clear words when it stays away',
  { skip },
  async t => {
    const { tinker, settings } = await opened(t);
    const notes: string[] = [];
    const progress = {
      ...silentProgress,
      note: (text: string) => void notes.push(text),
      update: (done: number) => done === 1 && void tinker.kill(),
    };
    const over = { training: { steps: 3, checkpoint_every: 1 }, policy: { tinker: { patience_s: 1 } } };
    const own = settings('away', over);
    await t.rejects(trainTiny(own, progress), { message: /was not available for 1\.\d s/ });
    t.ok(notes.some(note => note.startsWith(`waiting for ${tinker.url}`)));
  },
);

t.test('KL against the base model, warm starts and asynchronous rollouts', { skip }, async t => {
  const { settings } = await opened(t);
  const kl = await trainTiny(settings('kl', { loss: { kl: { coefficient: 0.1 } }, training: { steps: 2 } }));
  const rows = trainingRows(kl);
  t.ok(rows.every(row => row['actor/kl_loss'] >= 0 && row['actor/kl_loss'] < 1));
  const warm = settings('warm', { warm_start: { episodes: 8, epochs: 1 }, training: { steps: 1 } });
  const run = await trainTiny(warm);
  t.equal(trainingRows(run).length, 1);
  await resumeTiny(run, warm);
  const late = { rollout: { asynchronous: { max_staleness: 1 } }, training: { steps: 3 } };
  t.equal(trainingRows(await trainTiny(settings('late', late))).length, 3);
});
