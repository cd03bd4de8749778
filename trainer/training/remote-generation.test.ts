import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { script } from '../gateway/gateway.test-data.ts';
import { serveInProcess } from '../serve/process.test-data.ts';
import { ADMIN, goldenFolder, startServer } from '../serve/serve.test-data.ts';
import { type Progress, silentProgress } from '../tracking/progress.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import { MAX_MS, tinyRuns, trainingRows, weightsOf } from './runs.test-data.ts';

const TOKEN = 'engines';
const STEPS = 4;

t.test(
  'a run with two ragen servers as engines, one of which is killed, learns what a local one learns',
  { timeout: MAX_MS },
  async t => {
    const runs = await tinyRuns(t);
    const task = {
      policy: { value_head: false },
      training: { steps: STEPS },
      rollout: { constrained: true },
    };
    const train = (name: string, over: JsonObject = {}, progress?: Progress) =>
      runs.train(name, { ...task, ...over }, progress);
    const local = await train('local');
    const base = latestCheckpoint(await train('base', { training: { steps: 0 } }))!.policy;

    process.env.RAGEN_GENERATION_TEST_TOKEN = TOKEN;
    t.teardown(() => delete process.env.RAGEN_GENERATION_TEST_TOKEN);
    const env = { RAGEN_SERVE_TOKEN: TOKEN, RAGEN_SERVE_ADMIN_TOKEN: TOKEN };
    const servers = await Promise.all(
      [0, 1].map(() => serveInProcess(t, base, ['--workers', '1', '--context', '100'], env)),
    );
    const adapters = join(runs.folder, 'adapters');
    const warnings: string[] = [];
    const progress = {
      ...silentProgress,
      warn: (text: string) => warnings.push(text),
      update: (done: number) => {
        if (done === 2) servers[0].process.kill('SIGKILL');
      },
    };
    const remote = await train(
      'remote',
      {
        generation: {
          engine: 'ragen',
          urls: servers.map(server => server.url),
          adapter_folder: adapters,
          token_env: 'RAGEN_GENERATION_TEST_TOKEN',
          gap_every: 1,
        },
      },
      progress,
    );
    const rows = trainingRows(remote);
    t.equal(rows.length, STEPS);
    for (const row of rows) {
      t.ok(row['generation/logprob_gap_max'] < 1e-4, `gap ${row['generation/logprob_gap_max']}`);
    }
    t.ok(rows[0]['generation/engine_0/requests'] > 0 && rows[0]['generation/engine_1/requests'] > 0);
    const tokens = (row: (typeof rows)[number]) =>
      row['generation/engine_0/tokens'] + row['generation/engine_1/tokens'];
    const expected = trainingRows(local);
    rows.forEach((row, i) => {
      t.equal(row['train/success'], expected[i]['train/success']);
      t.equal(row['actor/grad_norm'], expected[i]['actor/grad_norm']);
      t.ok(tokens(row) > 0);
    });
    t.equal(rows[STEPS - 1]['generation/engine_0/requests'], 0, 'one engine was killed');
    t.ok(warnings.some(text => text.includes('left out for a while')));
    t.ok(weightsOf(remote).equals(weightsOf(local)), 'nothing was lost or counted twice');
    t.same(readdirSync(adapters), [], 'no version is left behind');
  },
);

t.test(
  'asynchronous training with values continues while an engine takes its versions',
  { timeout: MAX_MS },
  async t => {
    const { folder, train } = await tinyRuns(t);
    const base = latestCheckpoint(await train('base', { training: { steps: 0 } }))!.policy;
    const server = await startServer(t, base, { policy: { workers: 1, maxSequenceLength: 100 } });
    process.env.RAGEN_GENERATION_TEST_ADMIN = ADMIN;
    t.teardown(() => delete process.env.RAGEN_GENERATION_TEST_ADMIN);
    const run = await train('remote', {
      policy: { init: base, value_head: true },
      algorithm: { advantage: 'gae' },
      training: { steps: 5 },
      rollout: { asynchronous: { max_staleness: 1 } },
      generation: {
        engine: 'ragen',
        urls: [server.url],
        adapter_folder: join(folder, 'versions'),
        token_env: 'RAGEN_GENERATION_TEST_ADMIN',
        gap_every: 1,
      },
    });
    const rows = trainingRows(run);
    t.equal(rows.length, 5);
    for (const row of rows) {
      t.ok(row['generation/logprob_gap_max'] < 1e-4, `gap ${row['generation/logprob_gap_max']}`);
      t.equal(row['generation/engine_0/failures'], 0);
      t.ok(Number.isFinite(row['critic/vf_loss']), `value loss ${row['critic/vf_loss']}`);
      const hasOlder = 'generation/mismatch_kl_1' in row;
      t.ok(!hasOlder || row['rollouter/staleness_mean'] > 0, 'older tokens are compared by themselves');
    }
    t.same(
      server.models.all.map(({ name }) => name),
      ['base'],
      'no version stays loaded',
    );
  },
);

t.test(
  'programs are trained asynchronously, answered by the policy or by engines elsewhere',
  { timeout: MAX_MS },
  async t => {
    const { folder, train } = await tinyRuns(t);
    const base = goldenFolder('qwen2-tiny');
    const server = await startServer(t, base, { policy: { workers: 1, maxSequenceLength: 96 } });
    process.env.RAGEN_GENERATION_TEST_ADMIN = ADMIN;
    t.teardown(() => delete process.env.RAGEN_GENERATION_TEST_ADMIN);
    const command = script(`
      const reply = await chat([{ role: 'user', content: 'Which way?' }]);
      await step(reply.choices[0].message.content.length % 2 ? 'Up' : 'Down');
    `);
    const engines = {
      engine: 'ragen',
      urls: [server.url],
      adapter_folder: join(folder, 'versions'),
      token_env: 'RAGEN_GENERATION_TEST_ADMIN',
    };
    for (const generation of [{}, engines]) {
      const name = 'urls' in generation ? 'remote' : 'local';
      const run = await train(name, {
        tags: { Lake: { max_turn: 1, max_actions_per_turn: 1, max_actions_per_traj: 1 } },
        policy: { init: base, context: 96, value_head: false },
        rollout: {
          prompt: 'chat',
          env_groups: 2,
          group_size: 2,
          asynchronous: { max_staleness: 1 },
          agent: { command, processes: 2, timeout_s: 60 },
        },
        algorithm: { mini_batch_size: 2 },
        generation,
      });
      const rows = trainingRows(run);
      t.equal(rows.length, 2);
      for (const row of rows) t.match(row, { 'gateway/calls': 1, 'gateway/failed_attempts': 0 });
      if (name === 'remote') t.ok(rows[0]['generation/engine_0/requests'] >= 4);
    }
  },
);
