import {
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { stringify } from 'yaml';
import { loadConfig } from '../../../shared/config.ts';
import { makeFolder } from '../../../shared/replace-file.ts';
import { RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import { RunSettings } from '../../config/settings.ts';

/** Paths of a run: one folder holds everything needed to read, judge and resume it. */
export interface RunFolder {
  readonly path: string;
  /** The resolved config. */
  readonly config: string;
  /** Progress of the run, for dashboards and readers. */
  readonly status: string;
  /** Lines of the trainer with their times. */
  readonly log: string;
  readonly metrics: string;
  readonly tables: string;
  /** Verdict of the rollout filter on each group. */
  readonly groups: string;
  readonly tensorboard: string;
  readonly trajectories: string;
  /** The text of each token id in them. */
  readonly tokens: string;
  readonly checkpoints: string;
  /** The checkpoint with the best monitored metric, where it is kept. */
  readonly best: string;
  /** Policy and demonstrations of an unfinished warm start. */
  readonly warmStart: string;
  /** The policy at the start of training, kept where a KL term compares with it. */
  readonly reference: string;
  /** The same after later iterations, where the reference is refreshed. */
  readonly references: string;
  /** Machine-readable outcome, and the same as text. */
  readonly summary: string;
  readonly report: string;
  /** Evaluations of its checkpoints. */
  readonly evaluations: string;
  /** Signed results of one of them. */
  readonly result: string;
}

export function runFolderAt(path: string): RunFolder {
  return {
    path,
    config: join(path, RUN_FILES.config),
    status: join(path, RUN_FILES.status),
    log: join(path, RUN_FILES.log),
    metrics: join(path, RUN_FILES.metrics),
    tables: join(path, RUN_FILES.tables),
    groups: join(path, RUN_FILES.groups),
    tensorboard: join(path, 'tensorboard'),
    trajectories: join(path, RUN_FILES.trajectories),
    tokens: join(path, RUN_FILES.tokens),
    checkpoints: join(path, 'checkpoints'),
    best: join(path, 'checkpoints', 'best'),
    warmStart: join(path, 'warm-start'),
    reference: join(path, 'reference'),
    references: join(path, 'references'),
    summary: join(path, RUN_FILES.summary),
    report: join(path, 'report.md'),
    evaluations: join(path, RUN_FILES.evaluations),
    result: join(path, RUN_FILES.result),
  };
}

/**
 * Makes the folder of a new run and writes the resolved config into it.
 * @param defaultName used with the next free number where `run.name` is null
 * @throws Error when the named run exists
 */
export function createRunFolder(settings: RunSettings, defaultName: string): RunFolder {
  const parent = resolve(settings.run.folder);
  for (;;) {
    const name = settings.run.name ?? nextRunName(parent, defaultName);
    const run = runFolderAt(join(parent, name));
    try {
      for (const folder of [run.path, run.trajectories, run.checkpoints]) makeFolder(folder);
      if (writeNew(run.config, stringify({ ...settings, run: { ...settings.run, name } }))) return run;
    } catch (error) {
      for (const folder of [run.checkpoints, run.trajectories, run.path]) removeEmpty(folder);
      throw new Error(
        `${(error as Error).message}; runs are kept in run.folder ${settings.run.folder}: name a folder that can be written, e.g. run.folder=runs`,
        { cause: error },
      );
    }
    if (settings.run.name === null) continue;
    throw new Error(
      `${run.path} already holds a run; resume it with --resume ${run.path} or choose another run.name`,
    );
  }
}

function removeEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {
    // It holds something, or was never made.
  }
}

/** @returns false if the file exists, even if another process wrote it just now */
function writeNew(file: string, content: string): boolean {
  let opened: number;
  try {
    opened = openSync(file, 'wx');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
  try {
    writeFileSync(opened, content);
    return true;
  } catch (error) {
    rmSync(file);
    throw new Error(`cannot write ${file}: ${(error as Error).message}`, { cause: error });
  } finally {
    closeSync(opened);
  }
}

/**
 * Removes the folder of a run that failed before it measured or saved anything, so its name is free again.
 * @returns whether the folder is gone
 */
export function removeUnused(run: RunFolder): boolean {
  try {
    const measured = existsSync(run.metrics) && statSync(run.metrics).size > 0;
    if (measured || readdirSync(run.checkpoints).length > 0) return false;
    rmSync(run.path, { recursive: true });
  } catch {
    // The disk may be what ended the run; that error is the one to report.
  }
  return !existsSync(run.path);
}

/**
 * Finds an existing run and its settings.
 * @throws Error when the folder holds no run, ConfigError when its config does not fit this version
 */
export function openRunFolder(path: string): { run: RunFolder; settings: RunSettings } {
  const run = runFolderAt(resolve(path));
  if (!existsSync(run.config)) {
    throw new Error(`${path} holds no run: there is no config.yaml in it${nearbyRuns(resolve(path))}`);
  }
  if (!statSync(run.config).isFile()) throw new Error(`${run.config} is not a regular file`);
  return { run, settings: loadConfig(run.config, { schema: RunSettings }) };
}

/** The newest run under a folder with the name `name` or `name-NNN`; undefined without one. */
export function latestRun(folder: string, name: string): string | undefined {
  if (!existsSync(folder)) return undefined;
  const names = readdirSync(folder)
    .filter(entry => runNumber(entry, name) !== undefined && existsSync(join(folder, entry, 'config.yaml')))
    .sort((a, b) => runNumber(a, name)! - runNumber(b, name)!);
  return names.length > 0 ? join(folder, names.at(-1)!) : undefined;
}

/** `name-NNN` with the first number after the existing ones in the folder. */
export function nextRunName(parent: string, name: string): string {
  const numbers = existsSync(parent) ? readdirSync(parent).map(entry => runNumber(entry, name) ?? 0) : [];
  return `${name}-${String(Math.max(0, ...numbers) + 1).padStart(3, '0')}`;
}

function runNumber(entry: string, name: string): number | undefined {
  if (entry === name) return 0;
  if (!entry.startsWith(`${name}-`)) return undefined;
  const rest = entry.slice(name.length + 1);
  return /^\d+$/.test(rest) ? Number(rest) : undefined;
}

function nearbyRuns(path: string): string {
  const parent = resolve(path, '..');
  if (!existsSync(parent)) return '';
  const names = readdirSync(parent).filter(entry => existsSync(join(parent, entry, 'config.yaml')));
  return names.length > 0 ? `; runs in ${basename(parent)}: ${names.join(', ')}` : '';
}
