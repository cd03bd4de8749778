import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { stringify } from 'yaml';
import { mergeConfig } from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { loadTokenizer } from '../models/tokenizer/load.ts';
import { LocalPolicy } from '../policy/local-policy.ts';
import { settingsWith } from '../policy/policies.test-data.ts';
import { readTinkerCheckpoint } from '../policy/tinker/checkpoint.ts';
import { faultyProxy, playTinker, tinkerOptions } from '../policy/tinker/tinker.test-data.ts';
import { TinkerPolicy } from '../policy/tinker/tinker-policy.ts';
import { serve } from '../rollout/server.test-data.ts';
import { serveInProcess } from '../serve/process.test-data.ts';
import { FOLDER, startTinker } from '../serve/tinker/tinker.test-data.ts';
import { silentProgress } from '../tracking/progress.ts';
import { trainRun } from './run.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import { createRunFolder, openRunFolder } from './run-folder/run-folder.ts';
import { type Row, resumeTiny, tinySettings, trainingRows, trainTiny } from './runs.test-data.ts';

t.setTimeout(600_000);

const MAIN = fileURLToPath(new URL('../main.ts', import.meta.url));

/** The client against the server of this project. */
const MODULES = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] as const;
const lora = { rank: 4, alpha: 32, rankStabilized: false, dora: false, modules: [...MODULES] };

const farthest = (
  a: readonly { logProbs: Float32Array }[],
  b: readonly { logProbs: Float32Array }[],
): number =>
  Math.max(...a.flatMap(({ logProbs }, i) => Array.from(logProbs, (x, k) => Math.abs(x - b[i].logProbs[k]))));

t.test('steps at the server move the policy as steps in process do, for losses of both routes', async t => {
  const { url } = await startTinker(t);
  const { vocabularySize } = await loadTokenizer(FOLDER);
  const options = tinkerOptions(url, { baseModel: FOLDER, vocabularySize, retry: {} });
  const policy = await TinkerPolicy.open(options);
  t.teardown(() => policy.close());
  const local = await LocalPolicy.create({
    model: FOLDER,
    lora,
    seed: 1,
    workers: 1,
    valueHead: false,
    maxSequenceLength: 64,
  });
  t.teardown(() => local.close());
  const sequences = await playTinker(policy, 6);
  t.ok(farthest(await policy.score(sequences), await local.score(sequences)) < 1e-4, 'before');
  const losses = [
    { policy: 'gspo', aggregation: 'seq_mean_token_mean' },
    { policy: 'cross_entropy' },
    { policy: 'ppo', dualClip: 0 },
    { policy: 'ppo', dualClip: 3 },
    { policy: 'cispo' },
  ] as const;
  for (const loss of losses) {
    const settings = settingsWith({ ...loss, entropyCoefficient: 0 }, { learningRate: 0.01 });
    const [remote, own] = [
      await policy.update({ sequences }, settings),
      await local.update({ sequences }, settings),
    ];
    const norm = own['actor/grad_norm'];
    t.ok(
      Math.abs(remote['actor/grad_norm'] - norm) <= 1e-3 * norm,
      `${loss.policy}: ${remote['actor/grad_norm']}, ${norm}`,
    );
    t.ok(
      Math.abs(remote['actor/ppo_kl'] - own['actor/ppo_kl']) < 1e-4 || loss.policy === 'cross_entropy',
      loss.policy,
    );
  }
  const moved = farthest(await policy.score(sequences), sequences);
  t.ok(
    moved > 0.05 && farthest(await policy.score(sequences), await local.score(sequences)) < 0.02 * moved,
    'after',
  );
  await policy.sampler.publish();
  const again = await playTinker(policy, 4);
  t.ok(farthest(again, await policy.score(again)) < 1e-4, 'samples are scored as they were sampled');
});

t.test(
  'a server killed and started again says so at the next step, and the run continues from its folder',
  async t => {
    const folder = t.testdir({ checkpoints: {}, run: {} });
    const start = (port: string) =>
      serveInProcess(t, FOLDER, [
        ...['--tinker', '--checkpoints', join(folder, 'checkpoints')],
        ...['--workers', '1', '--port', port],
      ]);
    const { url, process } = await start('0');
    const { vocabularySize } = await loadTokenizer(FOLDER);
    const options = tinkerOptions(url, {
      baseModel: FOLDER,
      vocabularySize,
      retry: { baseMs: 20 },
      heartbeatMs: 1e6,
    });
    const policy = await TinkerPolicy.open(options);
    t.teardown(() => policy.close());
    const sequences = await playTinker(policy, 4);
    const settings = settingsWith(
      { policy: 'ppo', dualClip: 0, entropyCoefficient: 0 },
      { learningRate: 0.01 },
    );
    await policy.update({ sequences }, settings);
    await policy.save(join(folder, 'run'));
    const saved = await policy.score(sequences);
    await policy.update({ sequences }, settings);
    process.kill('SIGKILL');
    await once(process, 'exit');
    const next = policy.update({ sequences }, settings);
    next.catch(() => {});
    await start(new URL(url).port);
    await t.rejects(next, {
      name: 'TinkerError',
      message: /status 404: there is no model .* started again: .*resume the run from its last checkpoint/,
    });
    const resumed = await TinkerPolicy.open({ ...options, folder: join(folder, 'run') });
    t.teardown(() => resumed.close());
    t.equal(resumed.version, 1);
    t.ok(farthest(await resumed.score(sequences), saved) < 1e-5);
  },
);

/** A tiny model of a run's words, and runs with adapters over it. */
async function opened(t: Test) {
  const [server] = (await serve(t)).servers;
  const folder = t.testdir({ runs: {}, checkpoints: {} });
  const runs = join(folder, 'runs');
  const taught = { warm_start: { episodes: 64, epochs: 8, learning_rate: 0.01 }, training: { steps: 0 } };
  const model = latestCheckpoint(
    await trainTiny(tinySettings(server.name, runs, 'model', { ...taught, policy: { value_head: false } })),
  )!;
  const common: Json = {
    policy: { init: model.policy, lora: { rank: 8 }, value_head: false },
    loss: { entropy_coefficient: 0, dual_clip: 0 },
    optimizer: { learning_rate: 0.01, warmup_iterations: 0 },
    rollout: { env_groups: 8, group_size: 8 },
    algorithm: { mini_batch_size: 32 },
    training: { steps: 4, checkpoint_every: 2, validate_every: 0 },
    diagnostics: { collapse: { every: 0 } },
  };
  const settings = (name: string, over: Json = {}) =>
    tinySettings(server.name, runs, name, mergeConfig(common, over));
  const remote = (name: string, url: string, over: Json = {}) =>
    settings(
      name,
      mergeConfig(
        { policy: { runtime: 'tinker', tokenizer: model.policy, tinker: { url, server: 'ragen' } } },
        over,
      ),
    );
  /** A server in its own process, on the checkpoints of the one before. */
  const start = () => {
    const checkpoints = join(folder, 'checkpoints');
    const limits = ['--workers', '1', '--max-streams', '64'];
    return serveInProcess(t, model.policy, ['--tinker', '--checkpoints', checkpoints, ...limits]);
  };
  /** Folder of a checkpoint at the server. */
  const folderOf = (path: string) => {
    const [, , model, ...name] = path.split('/');
    return join(folder, 'checkpoints', model.replace(':train:', '-train-'), ...name);
  };
  return { settings, remote, start, runs, folderOf };
}

/** The rows of a run's steps; where a step was trained again after a kill, the last one. */
const lastRows = (run: Parameters<typeof trainingRows>[0]) =>
  trainingRows(run).filter((row, i, all) => all.findLastIndex(({ step }) => step === row.step) === i);

const sum = (rows: readonly Row[], name: string) => rows.reduce((total, row) => total + row[name], 0);

t.test(
  'a run through the server learns as in process, and one killed with its server loses and doubles no step',
  async t => {
    const { settings, remote, start } = await opened(t);
    const local = trainingRows(await trainTiny(settings('local')));
    const first = await start();
    const whole = trainingRows(await trainTiny(remote('whole', first.url)));
    t.equal(whole.length, 4);
    t.ok(
      Math.abs(sum(whole, 'train/return') - sum(local, 'train/return')) < 0.15 * 4,
      `${whole.map(row => row['train/return'])} and ${local.map(row => row['train/return'])}`,
    );
    t.ok(whole[0]['generation/logprob_gap_max'] < 1e-3);

    // Killed within step 4, after the checkpoint of step 2: the server by SIGKILL, the run by its end.
    const half = remote('killed', first.url, { policy: { tinker: { patience_s: 1 } } });
    const run = createRunFolder(half, 'tiny');
    const kill = () => first.process.kill('SIGKILL');
    const dying = { ...silentProgress, update: (done: number) => done === 3 && void setTimeout(kill, 100) };
    await t.rejects(trainRun(run, half, dying, new AbortController().signal), {
      message: /was not available/,
    });
    t.equal(latestCheckpoint(run)!.state.step, 2);
    const second = await start();
    await resumeTiny(run, remote('killed', second.url));
    const rows = lastRows(run);
    t.same(
      rows.map(({ step }) => step),
      [1, 2, 3, 4],
    );
    const { policy, state } = latestCheckpoint(run)!;
    t.equal(state.updates, 8);
    t.equal((await readTinkerCheckpoint(policy))!.version, 8, 'each step was applied once');
    rows.forEach((row, i) => {
      t.ok(
        Math.abs(row['actor/grad_norm'] - whole[i]['actor/grad_norm']) < 1e-2 * whole[i]['actor/grad_norm'],
        `step ${i + 1}`,
      );
    });
  },
);

t.test('a client killed by SIGKILL at any point of a step resumes: each step is applied once', async t => {
  const { remote, start, runs, folderOf } = await opened(t);
  const server = await start();
  const whole = trainingRows(await trainTiny(remote('whole', server.url)));
  const proxy = await faultyProxy(t, server.url);
  const config = join(runs, 'killed.yaml');
  writeFileSync(config, stringify(remote('killed', proxy.url)));
  const path = join(runs, 'killed');
  /** Runs the command until it has sent `after` requests to a route, and one more that the server carried out. */
  const killedAfter = async (route: string, after: number) => {
    const target = existsSync(path) ? ['--resume', path] : [config];
    const child = spawn(process.execPath, [MAIN, 'train', ...target, '--quiet'], { stdio: 'inherit' });
    const change = (reply: Buffer) => {
      child.kill('SIGKILL');
      return reply;
    };
    proxy.fault({ route, after, change });
    await once(child, 'exit');
    t.equal(child.signalCode, 'SIGKILL', `${route} ${after}`);
  };
  const version = async () => {
    const latest = latestCheckpoint(openRunFolder(path).run);
    return latest && (await readTinkerCheckpoint(latest.policy))!.version;
  };
  // The probe of each start takes three steps; an iteration has two updates.
  await killedAfter('optim_step', 3 + 4);
  t.equal(await version(), 4, 'in step 3, after its first update was applied');
  await killedAfter('forward_backward', 3 + 1);
  t.equal(await version(), 4, 'in step 3, before an optimizer step was sent');
  await killedAfter('save_weights', 0);
  t.equal(await version(), 4, 'after the server has the checkpoint of step 4, and before the run has');
  const { run } = openRunFolder(path);
  await resumeTiny(run, remote('killed', proxy.url));
  const { policy, state } = latestCheckpoint(run)!;
  t.same([state.step, state.updates, await version()], [4, 8, 8]);
  const { path: saved } = (await readTinkerCheckpoint(policy))!;
  const optimizer = join(folderOf(saved), 'optimizer', 'optimizer.json');
  t.equal(JSON.parse(readFileSync(optimizer, 'utf8')).step, 8, "the server's own count of optimizer steps");
  /** Folders of the three newest, which is what is kept. */
  const keptBy = async (name: string) => {
    const { policy } = latestCheckpoint(openRunFolder(join(runs, name)).run)!;
    return (await readTinkerCheckpoint(policy))!.kept.slice(-3).map(folderOf);
  };
  const kept = [...(await keptBy('whole')), ...(await keptBy('killed'))];
  const found = globSync(join(dirname(folderOf('tinker://x')), '*/weights/*'));
  t.same(found.filter(path => kept.includes(path)).sort(), kept.sort());
  t.equal(found.length, kept.length + 1, 'and the checkpoint that the killed run never named');
  const rows = lastRows(run);
  t.same(
    rows.map(({ step }) => step),
    [1, 2, 3, 4],
  );
  rows.forEach((row, i) => {
    const norm = whole[i]['actor/grad_norm'];
    t.ok(Math.abs(row['actor/grad_norm'] - norm) < 1e-2 * norm, `step ${i + 1}`);
  });
});
