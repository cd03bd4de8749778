/**
 * Asynchronous against synchronous training with a slow environment: Bandit with a delay of 0, 20 and 100 ms in each step,
 * 64 episodes an iteration, from the same warm start to the same success.
 *
 *     npm run bench:async [-- --latencies 0,20,100 --success 0.9 --staleness 4]
 *
 * Server and trainer run in this process, the policy on one worker. `seconds` are those of the iterations until a validation,
 * every fifth iteration on 256 episodes, has reached the success requested; validations themselves are not counted. The
 * shares are means over the iterations after the first two, in which programs are compiled.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createApp } from '../env-server/app.ts';
import type { AnyEnvironment } from '../env-server/environments/core/environment.ts';
import { BUILT_IN, createRegistry } from '../env-server/environments/registry.ts';
import { mean } from '../trainer/algorithms/statistics.ts';
import { loadRunSettings } from '../trainer/config/load.ts';
import { readJsonLines } from '../trainer/tracking/jsonlines.ts';
import { silentProgress } from '../trainer/tracking/progress.ts';
import { trainRun } from '../trainer/training/run.ts';
import { latestCheckpoint } from '../trainer/training/run-folder/checkpoint.ts';
import { createRunFolder, type RunFolder } from '../trainer/training/run-folder/run-folder.ts';
import { scriptFlags } from './flags.ts';

const CONFIG = fileURLToPath(new URL('../configs/bandit-nano.yaml', import.meta.url));
const ENVIRONMENT = 'Bandit-v0';
/** Iterations that the shares leave out. */
const COMPILING = 2;
const MAX_STEPS = 200;

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    latencies: { type: 'string', default: '0,20,100' },
    success: { type: 'string', default: '0.9' },
    staleness: { type: 'string', default: '4' },
  },
});
const wanted = Number(flags.success);
if (!(wanted > 0 && wanted < 1))
  throw new RangeError(`--success must lie between 0 and 1, got ${flags.success}`);
const latencies = flags.latencies.split(',').map(text => {
  const ms = Number(text);
  if (!(ms >= 0)) throw new RangeError(`--latencies must be milliseconds, got ${text}`);
  return ms;
});

type Row = { readonly [name: string]: number };

const rowsOf = (run: RunFolder, having: string) =>
  (readJsonLines(run.metrics) as Row[]).filter(row => having in row);
const lastSuccess = (run: RunFolder) => rowsOf(run, 'val-env/success').at(-1)?.['val-env/success'] ?? 0;

const folder = mkdtempSync(join(tmpdir(), 'ragen-async-'));
try {
  const init = await served(0, async url => {
    const run = await train(url, 'warm-start', ['training.steps=0']);
    return latestCheckpoint(run)!.policy;
  });
  console.log(
    '| latency of a step | training | iterations | seconds | success | trainer idle | policy busy |',
  );
  console.log('|---|---|---|---|---|---|---|');
  for (const ms of latencies) {
    for (const [mode, over] of [
      ['synchronous', []],
      ['asynchronous', ['recipe=asynchronous', `rollout.asynchronous.max_staleness=${flags.staleness}`]],
    ] as const) {
      const run = await served(ms, url =>
        train(url, `${mode}-${ms}`, [`policy.init=${init}`, 'warm_start=null', ...over]),
      );
      console.log(`| ${ms} ms | ${mode} | ${figures(run).join(' | ')} |`);
    }
  }
} finally {
  rmSync(folder, { recursive: true });
}

function figures(run: RunFolder): string[] {
  const rows = rowsOf(run, 'train/success');
  const share = (name: string) => mean(rows.slice(COMPILING).map(row => row[name]));
  const percent = (value: number) => `${(100 * value).toFixed(0)} %`;
  return [
    `${rows.length}`,
    rows.reduce((sum, row) => sum + row['timing_s/step'], 0).toFixed(1),
    percent(lastSuccess(run)),
    percent(share('trainer/idle_ratio')),
    percent(share('perf/policy_busy_ratio')),
  ];
}

/** Result of the work with a server that delays every step of Bandit. */
async function served<T>(latencyMs: number, work: (url: string) => Promise<T>): Promise<T> {
  const environments = BUILT_IN.map(one => (one.spec.id === ENVIRONMENT ? slowed(one, latencyMs) : one));
  const { server } = await createApp({ logLevel: 'silent' }, { registry: createRegistry(environments) });
  const url = await server.listen({ host: '127.0.0.1', port: 0 });
  try {
    return await work(url);
  } finally {
    await server.close();
  }
}

function slowed(environment: AnyEnvironment, latencyMs: number): AnyEnvironment {
  if (latencyMs === 0) return environment;
  return {
    ...environment,
    async step(state, action, rng) {
      await sleep(latencyMs);
      return environment.step(state, action, rng);
    },
  };
}

/** Trains in a separate run until the wanted success rate is reached. */
async function train(url: string, name: string, overrides: readonly string[]): Promise<RunFolder> {
  const settings = loadRunSettings(CONFIG, [
    `servers=[{"url":"${url}"}]`,
    `run.folder=${folder}`,
    `run.name=${name}`,
    'policy.workers=1',
    'rollout.env_groups=64',
    `training.steps=${MAX_STEPS}`,
    'training.validate_every=5',
    'training.validate_first=false',
    'validation.episodes=256',
    'tracking.tensorboard=false',
    'tracking.trajectories_every=0',
    ...overrides,
  ]);
  const run = createRunFolder(settings, name);
  const stop = new AbortController();
  const progress = {
    ...silentProgress,
    end() {
      if (lastSuccess(run) >= wanted) stop.abort(new DOMException('reached', 'AbortError'));
    },
  };
  await trainRun(run, settings, progress, stop.signal);
  return run;
}
