import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, join, relative, sep } from 'node:path';
import { shown } from '../../../shared/faults.ts';
import { attempted, isObject } from '../../../shared/json.ts';
import { trainerLog } from '../../../shared/log.ts';
import { replaceFileSync } from '../../../shared/replace-file.ts';
import type { KeptCheckpoints } from '../../../shared/run-folder/requests.ts';
import { shellWord } from '../../../shared/text.ts';
import type { EarlyStoppingState } from '../../algorithms/filters/early-stopping.ts';
import type { MonitorState } from '../../algorithms/filters/metric-monitor.ts';
import type { Metrics } from '../../data/episode-metrics.ts';
import type { CollapseMemory } from '../../diagnostics/collapse/collapse.ts';
import type { SourcePosition } from '../sources/episode-source.ts';
import type { RunFolder } from './run-folder.ts';

const STATE_FILE = 'trainer.json';
const POLICY_FOLDER = 'policy';
const FORMAT = 1;

/** State of the trainer without the policy. A run continues from both as if it had never stopped. */
export interface TrainerState extends SourcePosition {
  readonly format: typeof FORMAT;
  /** Iterations finished. */
  readonly step: number;
  /** Optimizer steps finished. */
  readonly updates: number;
  readonly episodes: number;
  readonly turns: number;
  /** Total numbers of sampled and of trained tokens. */
  readonly sampledTokens: number;
  readonly trainedTokens: number;
  /** Actions that servers carried out and tokens that were sampled for training, those of lost groups included. */
  readonly envSteps?: number;
  readonly usedTokens?: number;
  /** Seconds that the run took before this checkpoint, warm start included, over all its sessions. */
  readonly seconds: number;
  /** Success of each validation so far. */
  readonly validations: readonly ValidationRecord[];
  /** Hashes of the levels excluded from training, if any. */
  readonly validationLevels: readonly string[];
  readonly watch?: EarlyStoppingState;
  /** State of the monitored metric; absent before the first validation, and where nothing depends on it. */
  readonly monitor?: MonitorState;
  /** Running baselines of the advantages, by agent; absent where they have none. */
  readonly baselines?: Readonly<Record<string, number>>;
  /** State of the measurements of the reasoning; absent before the first. */
  readonly collapse?: CollapseMemory;
}

export interface ValidationRecord {
  readonly step: number;
  readonly seconds: number;
  readonly metrics: Metrics;
}

export function initialState(startSeed: number): TrainerState {
  return {
    format: FORMAT,
    step: 0,
    updates: 0,
    nextSeed: startSeed,
    episodes: 0,
    turns: 0,
    sampledTokens: 0,
    trainedTokens: 0,
    seconds: 0,
    validations: [],
    validationLevels: [],
  };
}

/**
 * Writes policy and state next to the other checkpoints and moves them into place in one step, so a checkpoint is
 * either complete or absent. Removes older ones beyond `keep`. An existing checkpoint of the same step keeps its
 * identical policy and gets the new state.
 * @param savePolicy writes the policy, optimizer included, into the given folder
 * @returns the checkpoint's folder
 */
export async function saveCheckpoint(
  run: RunFolder,
  state: TrainerState,
  savePolicy: (folder: string) => Promise<void>,
  keep: number,
): Promise<string> {
  const folder = join(run.checkpoints, `step-${String(state.step).padStart(6, '0')}`);
  if (checkpointFolders(run).includes(folder)) {
    replaceFileSync(join(folder, STATE_FILE), JSON.stringify(state, null, 1));
    return folder;
  }
  renameSync(await writePartial(folder, state, savePolicy), folder);
  trainerLog().debug({ folder, step: state.step }, 'checkpoint saved');
  for (const old of checkpointFolders(run).slice(0, -keep)) rmSync(old, { recursive: true, force: true });
  return folder;
}

/**
 * Writes the checkpoint of the best validation so far, then replaces the previous best.
 * @returns its folder
 */
export async function saveBestCheckpoint(
  run: Pick<RunFolder, 'best'>,
  state: TrainerState,
  savePolicy: (folder: string) => Promise<void>,
): Promise<string> {
  const partial = await writePartial(run.best, state, savePolicy);
  if (existsSync(run.best)) renameSync(run.best, replacedBest(run));
  renameSync(partial, run.best);
  mendBestCheckpoint(run);
  trainerLog().debug({ folder: run.best, step: state.step }, 'best checkpoint saved');
  return run.best;
}

/**
 * Completes a replacement of the best checkpoint that a kill interrupted: the previous one is removed, or restored if
 * the new one was not in place. The run resumes from an earlier step, so it will find the new one again.
 */
export function mendBestCheckpoint(run: Pick<RunFolder, 'best'>): void {
  const replaced = replacedBest(run);
  if (!existsSync(replaced)) return;
  if (existsSync(run.best)) rmSync(replaced, { recursive: true });
  else renameSync(replaced, run.best);
}

const replacedBest = ({ best }: Pick<RunFolder, 'best'>): string => `${best}.replaced`;

/**
 * Writes policy and state next to the folder.
 * @returns the partial folder
 */
async function writePartial(
  folder: string,
  state: TrainerState,
  savePolicy: (folder: string) => Promise<void>,
): Promise<string> {
  const partial = `${folder}.partial`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true });
  await savePolicy(join(partial, POLICY_FOLDER));
  writeFileSync(join(partial, STATE_FILE), JSON.stringify(state, null, 1));
  return partial;
}

export interface Checkpoint {
  readonly folder: string;
  /** Folder of the policy. */
  readonly policy: string;
  readonly state: TrainerState;
}

/** The newest checkpoint of a run cannot be read; the message names the one before it and how to continue from that. */
export class DamagedCheckpoint extends Error {
  override readonly name = 'DamagedCheckpoint';

  constructor(run: RunFolder, folder: string, cause: unknown) {
    const older = checkpointFolders(run)
      .filter(other => other < folder)
      .at(-1);
    const remedy =
      older === undefined
        ? 'it has no other one: start it again under another name, or copy the checkpoint back from elsewhere'
        : `the one before it is ${older}: to continue from that, move the damaged one away (mv ${shellWord(folder)} ${shellWord(`${folder}.damaged`)})`;
    super(`the newest checkpoint ${folder} is damaged (${(cause as Error).message}); ${remedy}`, { cause });
  }
}

/** The newest whole checkpoint of a run; undefined before the first. @throws DamagedCheckpoint */
export function latestCheckpoint(run: RunFolder): Checkpoint | undefined {
  const folder = checkpointFolders(run).at(-1);
  if (folder === undefined) return undefined;
  try {
    return readCheckpoint(folder);
  } catch (error) {
    throw new DamagedCheckpoint(run, folder, error);
  }
}

/** Steps of the whole checkpoints that a run keeps, in order, and of its best one. Damaged ones count, a damaged best does not. */
export function keptCheckpoints(run: RunFolder): KeptCheckpoints {
  const steps = checkpointFolders(run).map(stepOf);
  const best = attempted(() => readCheckpoint(run.best).state.step);
  return best === undefined ? { steps } : { steps, best };
}

/** The checkpoint of a step, the best one included; undefined where the run has none. @throws Error where it is damaged */
export function checkpointAt(run: RunFolder, step: number): Checkpoint | undefined {
  const folder = checkpointFolders(run).find(folder => stepOf(folder) === step);
  if (folder !== undefined) return readCheckpoint(folder);
  return keptCheckpoints(run).best === step ? readCheckpoint(run.best) : undefined;
}

/** @throws Error when the folder holds no checkpoint, or one of another format */
export function readCheckpoint(folder: string): Checkpoint {
  if (!existsSync(join(folder, STATE_FILE))) {
    throw new Error(`${folder} holds no checkpoint: there is no ${STATE_FILE} in it`);
  }
  return { folder, policy: join(folder, POLICY_FOLDER), state: readState(join(folder, STATE_FILE)) };
}

function readState(file: string): TrainerState {
  try {
    if (!statSync(file).isFile()) throw new Error('it is not a regular file');
    const state = JSON.parse(readFileSync(file, 'utf8')) as TrainerState;
    checkState(state);
    return state;
  } catch (error) {
    throw new Error(`${file}: ${(error as Error).message}`, { cause: error });
  }
}

const COUNTS = [
  'step',
  'updates',
  'nextSeed',
  'episodes',
  'turns',
  'sampledTokens',
  'trainedTokens',
] as const satisfies readonly (keyof TrainerState)[];

/** Checks the parts that every state has. @throws Error naming the first that is wrong */
function checkState(state: TrainerState): void {
  if (!isObject(state)) throw new Error(`it must hold an object, got ${shown(state)}`);
  const { format, seconds, validations } = state;
  if (format !== FORMAT) throw new Error(`it has format ${shown(format)}; this version reads ${FORMAT}`);
  for (const name of COUNTS) {
    if (!Number.isSafeInteger(state[name]) || state[name] < 0)
      throw new Error(`\`${name}\` must be an integer from 0, got ${shown(state[name])}`);
  }
  if (!Number.isFinite(seconds)) throw new Error(`\`seconds\` must be a number, got ${shown(seconds)}`);
  if (!Array.isArray(validations) || !validations.every(isValidation))
    throw new Error('`validations` must list objects with `step`, `seconds` and `metrics`');
}

const isValidation = (value: ValidationRecord): boolean =>
  isObject(value) && Number.isFinite(value.step) && Number.isFinite(value.seconds) && isObject(value.metrics);

/** The checkpoint of this run that a folder contains or belongs to; undefined for other folders. */
export function checkpointOf(run: Pick<RunFolder, 'checkpoints'>, policy: string): Checkpoint | undefined {
  if (!existsSync(policy) || !existsSync(run.checkpoints)) return undefined;
  const [name, part] = relative(realpathSync(run.checkpoints), realpathSync(policy)).split(sep);
  const folder = join(run.checkpoints, name);
  return part === POLICY_FOLDER && existsSync(join(folder, STATE_FILE)) ? readCheckpoint(folder) : undefined;
}

/** Iteration of the oldest whole checkpoint; 0 before the first. */
export function oldestCheckpoint(run: RunFolder): number {
  const [folder] = checkpointFolders(run);
  return folder === undefined ? 0 : readCheckpoint(folder).state.step;
}

/** Whole checkpoints, oldest first. */
function checkpointFolders(run: RunFolder): string[] {
  if (!existsSync(run.checkpoints)) return [];
  return readdirSync(run.checkpoints)
    .filter(name => /^step-\d+$/.test(name) && existsSync(join(run.checkpoints, name, STATE_FILE)))
    .map(name => join(run.checkpoints, name))
    .sort((a, b) => stepOf(a) - stepOf(b));
}

/** The step in the name of a checkpoint's folder. */
const stepOf = (folder: string): number => Number(basename(folder).slice('step-'.length));
