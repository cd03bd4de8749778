/**
 * Training with tokens sampled by two processes of `ragen serve`, against training that samples by itself: the quickstart's run
 * from one warm start, with the same seeds. With `--kill` the first of the two is killed half-way.
 *
 *     npm run bench:generation [-- --steps 20 --kill --without-local --config configs/quickstart.yaml]
 *
 * Environment server, trainer and both engines share this machine. Success is that of the validation after the last step:
 * with --steps 100 as the quickstart's. Standard error shows how far the runs are.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createApp } from '../env-server/app.ts';
import { mean } from '../trainer/algorithms/statistics.ts';
import { loadRunSettings } from '../trainer/config/load.ts';
import { readJsonLines } from '../trainer/tracking/jsonlines.ts';
import { type Progress, plainProgress } from '../trainer/tracking/progress.ts';
import { trainRun } from '../trainer/training/run.ts';
import { latestCheckpoint } from '../trainer/training/run-folder/checkpoint.ts';
import { createRunFolder, type RunFolder } from '../trainer/training/run-folder/run-folder.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { startServe } from './server-process.ts';

const TOKEN = 'bench';
const TOKEN_VARIABLE = 'RAGEN_BENCH_GENERATION_TOKEN';
/** Iterations that means leave out: programs are compiled in them. */
const COMPILING = 2;
const ENGINES = 2;

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    steps: { type: 'string', default: '20' },
    config: { type: 'string', default: 'configs/quickstart.yaml' },
    kill: { type: 'boolean', default: false },
    'without-local': { type: 'boolean', default: false },
  },
});
const steps = positiveInteger('steps', flags.steps);
const config = flags.config;

type Row = { readonly [name: string]: number };
const folder = mkdtempSync(join(tmpdir(), 'ragen-generation-'));
const { server } = await createApp({ logLevel: 'silent' });
const url = await server.listen({ host: '127.0.0.1', port: 0 });
process.env[TOKEN_VARIABLE] = TOKEN;

async function train(
  name: string,
  over: readonly string[],
  onStep: (step: number) => void = () => {},
): Promise<RunFolder> {
  const settings = loadRunSettings(config, [
    `servers=[{url: "${url}"}]`,
    `run.folder=${folder}`,
    `run.name=${name}`,
    'training.validate_first=false',
    `training.validate_every=${steps}`,
    ...over,
  ]);
  const run = createRunFolder(settings, name);
  const shown = plainProgress(process.stderr);
  const update: Progress['update'] = (done, numbers) => {
    shown.update(done, numbers);
    onStep(done);
  };
  await trainRun(run, settings, { ...shown, update }, new AbortController().signal);
  return run;
}

function figures(run: RunFolder): string[] {
  const rows = readJsonLines(run.metrics) as Row[];
  const iterations = rows.filter(row => 'train/success' in row).slice(COMPILING);
  const of = (name: string) => mean(iterations.map(row => row[name]));
  const success = rows.filter(row => 'val-env/success' in row).at(-1)?.['val-env/success'] ?? Number.NaN;
  const gaps = iterations.flatMap(row => row['generation/logprob_gap_max'] ?? []);
  return [
    of('timing_s/step').toFixed(2),
    of('timing_s/gen').toFixed(2),
    `${(100 * of('trainer/idle_ratio')).toFixed(0)} %`,
    `${(100 * success).toFixed(1)} %`,
    gaps.length === 0 ? '' : Math.max(...gaps).toExponential(1),
  ];
}

const engines: { readonly child: { kill(signal?: NodeJS.Signals): boolean } }[] = [];
try {
  const base = latestCheckpoint(await train('base', ['training.steps=0']))!.policy;
  const goOn = [`policy.init=${base}`, 'warm_start=null', `training.steps=${steps}`];
  console.log(
    '| tokens from | s an iteration | of it sampling | learner idle | success | largest gap, nats |',
  );
  console.log('| --- | --- | --- | --- | --- | --- |');
  if (!flags['without-local']) {
    console.log(`| the policy itself | ${figures(await train('local', goOn)).join(' | ')} |`);
  }
  const env = { RAGEN_SERVE_TOKEN: TOKEN, RAGEN_SERVE_ADMIN_TOKEN: TOKEN };
  const started = await Promise.all(
    Array.from({ length: ENGINES }, () => startServe(base, ['--workers', '1'], env)),
  );
  engines.push(...started);
  const urls = started.map(engine => `"${engine.url}"`).join(', ');
  const remote = await train(
    'remote',
    [
      ...goOn,
      'generation.engine=ragen',
      `generation.urls=[${urls}]`,
      `generation.adapter_folder=${join(folder, 'versions')}`,
      `generation.token_env=${TOKEN_VARIABLE}`,
    ],
    step => {
      if (flags.kill && step === Math.ceil(steps / 2)) started[0].child.kill('SIGKILL');
    },
  );
  const killed = flags.kill ? ', one killed half-way' : '';
  console.log(`| ${ENGINES} ragen engines${killed} | ${figures(remote).join(' | ')} |`);
} finally {
  for (const { child } of engines) child.kill('SIGKILL');
  await server.close();
  rmSync(folder, { recursive: true });
}
