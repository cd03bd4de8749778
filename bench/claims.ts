/**
 * Reproduces the claims about learning: `npm run bench:claims -- --claim 1 --seeds 0,1,2`. Trains run after run, each in a separate
 * process; the same command continues where it was stopped or killed and skips finished runs. After each run it writes
 * docs/results/<claim>.md, its data and its pictures from the runs so far. Hours on two cores; with `--quick` at most 20 minutes a
 * seed, on separate pages. docs/reference/results.md has a table.
 *
 * `--parallel 2` runs two seeds at a time, each with its share of the processors as workers: one and a half times as many runs in
 * the same time, as small policies gain little from a second worker. Minutes are those of such a run then.
 *
 * `--only` takes the variants with this in their names, and the warm starts that they need; rows of the others stay as the same
 * command wrote them. `--scale 0.02` is a rehearsal with
 * that share of iterations, time and demonstrations; `--minutes` is the longest time of each run. `--runs` is the folder of the
 * runs, `--out` that of pages, data and pictures. `--dry-run` prints the commands. Settings may follow, for all runs: with
 * `training.max_seconds=null` their iterations alone end them, for a machine that does other things as well.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, resolve } from 'node:path';
import { mapConcurrently } from '../shared/scheduling/queues.ts';
import { latestCheckpoint } from '../trainer/training/run-folder/checkpoint.ts';
import { runFolderAt } from '../trainer/training/run-folder/run-folder.ts';
import { type Claim, type ClaimRun, replaceOverrides } from './claims/claim.ts';
import { CLAIMS } from './claims/claims.ts';
import { type ClaimOutcome, claimFolder, readOutcome, runName } from './claims/outcomes.ts';
import { SMOLLM2 } from './claims/published-model.ts';
import { QUICK_CLAIMS } from './claims/quick.ts';
import { playReferences, readReferences } from './claims/reference-players.ts';
import { claimFigures, claimPage } from './claims/report.ts';
import { completeRun, ROOT, runTrainer, trainerArguments } from './claims/run-trainer.ts';
import { writePlannedThoughts } from './claims/thoughts.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { ServerProcess } from './server-process.ts';

const { values: flags, positionals } = scriptFlags(import.meta.filename, {
  allowPositionals: true,
  options: {
    claim: { type: 'string', multiple: true },
    seeds: { type: 'string', default: '0,1,2' },
    /** The short forms, of at most 20 minutes a seed on two idle cores. */
    quick: { type: 'boolean', default: false },
    /** Share of iterations, time and demonstrations of each run: a rehearsal. */
    scale: { type: 'string', default: '1' },
    /** Longest time of each run; the whole of a claim takes as many of them as it has runs. */
    minutes: { type: 'string' },
    /** Only the variants with this in their names, and the warm starts that they need. */
    only: { type: 'string' },
    /** Seeds at a time. */
    parallel: { type: 'string', default: '1' },
    runs: { type: 'string', default: 'runs' },
    /** Output folder of pages, data and pictures. */
    out: { type: 'string', default: ROOT },
    'dry-run': { type: 'boolean', default: false },
  },
});

const scale = Number(flags.scale);
if (!(scale > 0 && scale <= 1)) throw new RangeError(`--scale is above 0 and at most 1, got ${flags.scale}`);
const minutes = flags.minutes === undefined ? undefined : Number(flags.minutes);
if (minutes !== undefined && !(minutes > 0))
  throw new RangeError(`--minutes is above 0, got ${flags.minutes}`);
const seeds = flags.seeds.split(',').map(text => {
  const seed = Number(text);
  if (!Number.isInteger(seed) || seed < 0 || text.trim() === '')
    throw new RangeError(`--seeds are whole numbers from 0 with commas between them, got ${flags.seeds}`);
  return seed;
});
const known = flags.quick ? QUICK_CLAIMS : CLAIMS;
const claims = (flags.claim ?? known.map(({ number }) => String(number))).map(text => {
  const claim = known.find(({ number, name }) => text === String(number) || text === name);
  if (claim) return claim;
  throw new RangeError(
    `--claim ${text}: there are ${known.map(({ number, name }) => `${number} (${name})`).join(', ')}`,
  );
});

const parallel = positiveInteger('parallel', flags.parallel);
const workers = Math.max(1, Math.floor(availableParallelism() / parallel));
/** Settings of all runs. */
const settings = [
  ...(parallel === 1 || positionals.some(text => text.startsWith('policy.workers='))
    ? []
    : [`policy.workers=${workers}`]),
  ...positionals,
];

/** Fewest of each that a rehearsal has. */
const FEWEST: { readonly [setting: string]: number } = { 'warm_start.episodes': 32 };

/** Overrides of a run, with its seed and folder, and shorter where rehearsed. */
function overridesOf({ overrides, warmStart }: ClaimRun, seed: number, folder: string): string[] {
  const limit =
    minutes === undefined || warmStart ? [] : [`training.max_seconds=${Math.round(60 * minutes)}`];
  return [
    ...overrides.map(text => {
      const filled = text
        .replaceAll('{seed}', String(seed))
        .replaceAll('{folder}', folder)
        .replaceAll(SMOLLM2, smollm2);
      const [, setting, length] =
        /^(training\.(?:steps|max_seconds)|warm_start\.episodes)=(\d+)$/.exec(filled) ?? [];
      return setting === undefined || length === '0' || scale === 1
        ? filled
        : `${setting}=${Math.max(FEWEST[setting] ?? 2, Math.round(scale * Number(length)))}`;
    }),
    ...settings,
    `seed=${seed}`,
    ...limit,
  ];
}

/** Command and arguments of a run: from its beginning, or from where it is. */
function argumentsOf(run: ClaimRun, seed: number, folder: string, server: string): string[] {
  const data = run.thoughts ? ['--data', thoughtsFile(seed, folder)] : [];
  const args = trainerArguments({
    command: run.warmStart ? 'sft' : 'train',
    config: run.config,
    overrides: overridesOf(run, seed, folder),
    folder,
    name: runName(run.variant, seed),
    server,
  });
  return args.includes('--resume') ? args : [...args, ...data];
}

/** The published model's file, which is fetched the first time. */
function smollm2(): string {
  const output = execFileSync(join(ROOT, 'install/smollm2.sh'), {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  return output.trim();
}

const thoughtsFile = (seed: number, folder: string) => join(folder, `thoughts-seed-${seed}.jsonl`);

/** Lets a solver play and writes its games with its plan as thoughts; nothing where they are there. */
async function makeThoughts(run: ClaimRun, seed: number, folder: string, origin: string): Promise<void> {
  const file = thoughtsFile(seed, folder);
  if (existsSync(file)) return;
  const solved = `${file}.solved`;
  const servers = `servers=${JSON.stringify([{ url: origin }])}`;
  const overrides = [...overridesOf(run, seed, folder), servers];
  await completeRun(['demonstrations', run.config, ...overrides, '--out', solved, '--quiet']);
  writePlannedThoughts(solved, file);
  rmSync(solved);
}

function isDone(run: ClaimRun, seed: number, folder: string): boolean {
  const path = join(folder, runName(run.variant, seed));
  if (run.warmStart) return latestCheckpoint(runFolderAt(path)) !== undefined;
  return readOutcome(path, run.variant, seed) !== undefined;
}

/** A flag as it was given, for the command that a page names. */
function flagText(name: 'minutes'): string {
  return flags[name] === undefined ? '' : ` --${name} ${flags[name]}`;
}

/** The runs that were requested. */
function chosenRuns({ runs }: Claim): readonly ClaimRun[] {
  const { only } = flags;
  if (only === undefined) return runs;
  const chosen = runs.filter(({ variant, warmStart }) => warmStart || variant.includes(only));
  if (chosen.some(({ warmStart }) => !warmStart)) return chosen;
  throw new RangeError(`--only ${only}: there are ${runs.map(({ variant }) => variant).join('; ')}`);
}

/** With the settings that follow the flags. */
function asGiven(claim: Claim): Claim {
  const runs = claim.runs.map(run => ({ ...run, overrides: replaceOverrides(run.overrides, settings) }));
  const text =
    parallel === 1 ? [] : [`Runs went ${parallel} at a time: minutes are those of a share of the machine.`];
  return { ...claim, runs, text: [...claim.text, ...text] };
}

/** Rows that the same command wrote. */
function rowsOf(file: string, command: string): readonly ClaimOutcome[] {
  if (!existsSync(file)) return [];
  const data = JSON.parse(readFileSync(file, 'utf8')) as { command: string; rows: ClaimOutcome[] };
  return data.command === command ? data.rows : [];
}

/** Writes page, data and pictures of what is done. */
function write(claim: Claim, folder: string): void {
  const command = `npm run bench:claims -- --claim ${claim.number}${flags.quick ? ' --quick' : ''} --seeds ${seeds.join(',')}${scale === 1 ? '' : ` --scale ${scale}`}${flagText('minutes')}${parallel === 1 ? '' : ` --parallel ${parallel}`}${positionals.map(text => ` ${text}`).join('')}`;
  const data = `docs/results/data/claim-${claim.name}.json`;
  const before = flags.only === undefined ? [] : rowsOf(join(flags.out, data), command);
  const outcomes = claim.runs.flatMap(run =>
    seeds.flatMap((seed): ClaimOutcome[] => {
      if (run.warmStart) return [];
      const outcome =
        readOutcome(join(folder, runName(run.variant, seed)), run.variant, seed) ??
        before.find(row => row.variant === run.variant && row.seed === seed);
      return outcome ? [outcome] : [];
    }),
  );
  if (outcomes.length === 0) return;
  const references = readReferences(claim.players ?? [], folder);
  const files = new Map([
    [
      data,
      `${JSON.stringify({ title: claim.title, command, rows: outcomes, ...(claim.players ? { references } : {}) }, null, 2)}\n`,
    ],
    [`docs/results/${claim.name}.md`, claimPage(asGiven(claim), outcomes, command, references)],
    ...claimFigures(claim, outcomes),
  ]);
  for (const [path, text] of files) {
    const file = join(flags.out, path);
    mkdirSync(join(file, '..'), { recursive: true });
    writeFileSync(file, text);
  }
}

/** Runs of a claim with a seed, one after the other. */
async function runSeed(claim: Claim, seed: number, folder: string): Promise<void> {
  for (const run of chosenRuns(claim)) {
    const name = runName(run.variant, seed);
    const done = isDone(run, seed, folder);
    const args = argumentsOf(run, seed, folder, server.origin);
    console.log(
      `claim ${claim.number}, ${name}: ${done ? 'done' : flags['dry-run'] ? args.join(' ') : 'begins'}`,
    );
    if (done || flags['dry-run']) continue;
    if (run.thoughts) await makeThoughts(run, seed, folder, server.origin);
    const status = await runTrainer(args);
    if (status !== 0) {
      failed++;
      console.error(`claim ${claim.number}, ${name}: ended with status ${status}`);
      // The others of the seed begin with it.
      if (run.warmStart) break;
    }
    write(claim, folder);
  }
}

const server = new ServerProcess([]);
let failed = 0;
try {
  if (!flags['dry-run']) await server.start();
  for (const claim of claims) {
    const folder = claimFolder(resolve(flags.runs), claim.name);
    mkdirSync(folder, { recursive: true });
    for (const players of flags['dry-run'] ? [] : (claim.players ?? [])) {
      const status = await playReferences(
        players,
        folder,
        server.origin,
        flags.scale === '1' ? undefined : 64,
      );
      if (status !== 0) throw new Error(`the players of ${players.name} ended with status ${status}`);
    }
    await mapConcurrently(seeds, flags['dry-run'] ? 1 : parallel, seed => runSeed(claim, seed, folder));
    if (!flags['dry-run']) write(claim, folder);
  }
} finally {
  if (!flags['dry-run']) await server.end('SIGTERM');
}
process.exitCode = failed === 0 ? 0 : 1;
