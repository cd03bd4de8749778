import { readFileSync } from 'node:fs';
import { basename, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { printableLines } from '../shared/text.ts';
import {
  type ChildProgram,
  INTERRUPTED_STATUS,
  KILLED_STATUS,
  startTrainer,
  stopRequests,
} from './commands/processes/child-program.ts';
import { startEnvServer } from './commands/processes/env-server-process.ts';
import type { RunSummary } from './training/run-folder/report.ts';

// Modules of the trainer are imported once the server's address is printed.

const CONFIG = fileURLToPath(new URL('../configs/quickstart.yaml', import.meta.url));
const RUNS = 'runs';
const NAME = 'quickstart';

interface QuickstartOptions {
  readonly resume?: boolean;
  readonly fresh?: boolean;
  readonly exit?: boolean;
}

/** The run to start: an unfinished one continues unless a fresh one is requested. */
async function planRun(options: QuickstartOptions): Promise<{ run: string; resume: boolean }> {
  const { unfinishedRun } = await import('./commands/processes/trainer-process.ts');
  const { nextRunName } = await import('./training/run-folder/run-folder.ts');
  const unfinished = unfinishedRun(resolve(RUNS), NAME);
  if (options.resume && !unfinished) {
    throw new Error(
      `there is no unfinished quickstart run under ${RUNS}/ to resume; npm start begins a new one`,
    );
  }
  if (unfinished && !options.fresh) {
    const { path, position } = unfinished;
    console.log(`Continuing the unfinished run ${relative('.', path)} ${position}`);
    console.log('  (npm start -- --fresh begins a new one)');
    return { run: path, resume: true };
  }
  const name = nextRunName(resolve(RUNS), NAME);
  return { run: resolve(RUNS, name), resume: false };
}

async function quickstart(options: QuickstartOptions): Promise<number> {
  console.log(
    'ragen quickstart: a small language-model policy learns FrozenLake through an environment server.',
  );
  console.log('The environment server starts; its address follows in seconds (a busy machine takes longer).');
  console.log();
  const children: ChildProgram[] = [];
  let wasKilled = false;
  using requests = stopRequests(
    () => children.at(-1)?.stop(),
    () => {
      wasKilled = true;
      for (const child of children) child.kill();
    },
  );
  const server = await startEnvServer(['--runs', resolve(RUNS)]);
  children.push(server.child);
  try {
    if (requests.signal.aborted) return INTERRUPTED_STATUS;
    console.log(
      `1. environment server  ${server.url}  (process ${server.child.pid}; play and watch: ${server.url}/#/watch)`,
    );
    const { run, resume } = await planRun(options);
    const page = `${server.url}/runs/#/run/${encodeURIComponent(basename(run))}`;
    if (requests.signal.aborted) return INTERRUPTED_STATUS;
    console.log(`2. trainer             configs/quickstart.yaml → ${relative('.', run)}`);
    console.log(`3. the run, live       ${page}`);
    console.log('   Ctrl-C stops both with a checkpoint; npm start then continues.');
    console.log();
    const where = [`servers=[{url: "${server.url}"}]`];
    const trainer = startTrainer(
      resume
        ? ['--resume', run, ...where]
        : [CONFIG, `run.folder=${resolve(RUNS)}`, `run.name=${basename(run)}`, ...where],
      'npm start',
    );
    children.push(trainer);
    const status = await trainer.ended;
    if (status === KILLED_STATUS && !wasKilled) {
      console.error('The trainer was killed, perhaps because memory ran out. To continue the run: npm start');
    }
    if (status !== 0) return status;
    await printSummary(run, options.exit ? undefined : server.url);
    if (options.exit) {
      console.log(`\nSee how it plays, what it does wrong and whether training was healthy:`);
      console.log(`  npm run trainer -- dashboard    # opens http://127.0.0.1:8090/runs/`);
    } else {
      console.log(
        `\nHow it plays, what it does wrong, whether training was healthy, and these commands: ${page}`,
      );
      console.log('The server and the page stay until you press Ctrl-C.');
      children.splice(0, children.length, server.child);
      await server.child.ended;
    }
    return status;
  } finally {
    server.child.stop();
    await server.child.ended;
  }
}

/** @param server address of a server that keeps running; undefined where it ends with the training */
async function printSummary(run: string, server: string | undefined): Promise<void> {
  const { shownDuration, shownShare } = await import('./tracking/progress.ts');
  const { openRunFolder } = await import('./training/run-folder/run-folder.ts');
  const folder = relative('.', run);
  const { run: files, settings } = openRunFolder(run);
  const summary = JSON.parse(readFileSync(files.summary, 'utf8')) as RunSummary;
  console.log();
  for (const [tag, after] of Object.entries(summary.after?.tags ?? {})) {
    const before = summary.before?.tags[tag];
    const { random, optimum } = summary.references[tag];
    console.log(
      `${tag}: success ${before ? `${shownShare(before.success)} → ` : ''}${shownShare(after.success)} on ` +
        `${settings.validation.episodes} lakes of the validation seeds, in ${shownDuration(summary.seconds)}` +
        ` (${summary.episodes} training episodes).`,
    );
    if (random !== null && optimum !== null) {
      console.log(
        `  For comparison: acting at random reaches ${shownShare(random)}, the optimum is ${shownShare(optimum)}.`,
      );
    }
  }
  const url = server ?? 'http://127.0.0.1:8080';
  const where = server === undefined || server === 'http://127.0.0.1:8080' ? '' : ` --servers ${server}`;
  console.log(`
What to do next${server === undefined ? ', with a server running: npm run env-server' : ', in another terminal'}
  Look      ${folder}/report.md; tensorboard --logdir ${folder}/tensorboard
  Evaluate  npm run trainer -- evaluate ${folder} --policy checkpoint --policy random --policy optimal 'servers=[${url}]'
  Serve     npm run trainer -- serve ${folder}
  Play      ${url}/#/play/FrozenLake-v0
  Your own  npm run trainer -- init me/GuessTen-v0${where}    # docs/tutorial/learning-curve.md makes this environment
  Harder    npm run trainer -- train configs/sokoban-demonstrations.yaml 'servers=[${url}]'`);
}

const program = new Command('npm start --')
  .description('Starts an environment server and trains a small policy on FrozenLake against it.')
  .option('--resume', 'continue with the latest unfinished run (the default where there is one)')
  .option('--fresh', 'begin a new run')
  .option('--exit', 'end when training ends, for scripts; else the server and its pages stay until Ctrl-C')
  .action(async (options: QuickstartOptions) => {
    process.exitCode = await quickstart(options);
  });

try {
  await program.parseAsync();
} catch (error) {
  console.error(printableLines(`quickstart: ${(error as Error).message}`));
  process.exitCode = 1;
}
