import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from '../../algorithms/losses/settings.ts';
import { countOnes, type TrainingSequence } from '../../algorithms/training-sequence.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Demonstration } from '../../data/demonstrations.ts';
import type { Metrics } from '../../data/episode-metrics.ts';
import { samplingMask } from '../../data/token-weights.ts';
import type { Policy } from '../../policy/policy.ts';
import { mixSeed, PURPOSE } from '../../rollout/seeds.ts';
import { readJsonLines, writeJsonLines } from '../../tracking/jsonlines.ts';
import type { RunFolder } from '../run-folder/run-folder.ts';
import { learningRateAt, splitEvenly, updatePolicy } from '../update/update.ts';

const STATE_FILE = 'warm-start.json';
const POLICY_FOLDER = 'policy';
const DEMONSTRATIONS_FILE = 'demonstrations.jsonl';
const FORMAT = 1;

/** Position of supervised learning. */
interface WarmStartPosition {
  /** Optimizer steps finished, over all epochs. */
  readonly updates: number;
  /** Metrics of the optimizer steps of the unfinished epoch. */
  readonly epochMetrics: readonly Metrics[];
}

/** State of an unfinished warm start, without the policy and the demonstrations. */
export interface WarmStartState extends WarmStartPosition {
  /** Number of demonstrations, and of their learned tokens in an epoch. */
  readonly demonstrations: number;
  readonly learnedTokens: number;
  /** Rows of metrics written so far. */
  readonly rows: readonly Metrics[];
  /** Seconds spent so far, including the run's earlier parts. */
  readonly seconds: number;
}

export interface WarmStartProgress {
  /** Folder of the policy, with its optimizer's state. */
  readonly policy: string;
  readonly state: WarmStartState;
}

/** Readable form of a position. */
export const shownPosition = ({ updates }: WarmStartPosition): string =>
  `in its warm start, after ${updates} optimizer steps`;

type WarmStartFolder = Pick<RunFolder, 'warmStart'>;

/** Saves policy and state in one step, in place of the previous ones. Weights are float32. */
export async function saveWarmStart(
  run: WarmStartFolder,
  state: WarmStartState,
  policy: Pick<Policy, 'save'>,
): Promise<void> {
  const folder = join(run.warmStart, `step-${String(state.updates).padStart(6, '0')}`);
  if (existsSync(folder)) return;
  const partial = `${folder}.partial`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true });
  await policy.save(join(partial, POLICY_FOLDER));
  writeFileSync(join(partial, STATE_FILE), JSON.stringify({ format: FORMAT, ...state }));
  renameSync(partial, folder);
  for (const old of progressFolders(run).slice(0, -1)) rmSync(old, { recursive: true, force: true });
}

/**
 * State of a stopped warm start; undefined if there is none.
 * @throws Error for the format of another version
 */
export function readWarmStart(run: WarmStartFolder): WarmStartProgress | undefined {
  const folder = progressFolders(run).at(-1);
  if (folder === undefined) return undefined;
  const { format, ...state } = JSON.parse(
    readFileSync(join(folder, STATE_FILE), 'utf8'),
  ) as WarmStartState & {
    readonly format: number;
  };
  if (format !== FORMAT) {
    throw new Error(`${folder} has format ${format} of warm starts; this version reads ${FORMAT}`);
  }
  return { policy: join(folder, POLICY_FOLDER), state };
}

/** Removes the saved state of a finished warm start. */
export function removeWarmStart(run: WarmStartFolder): void {
  rmSync(run.warmStart, { recursive: true, force: true });
}

interface DemonstrationLine {
  readonly token_ids: readonly number[];
  /** A digit for each token; 1: learned. */
  readonly mask: string;
  /** Sets of tokens that no earlier line has. */
  readonly sets?: readonly (readonly number[])[];
  /** Positions with the number of the set of tokens that could have been sampled there, counted over all lines. */
  readonly allowed?: readonly (readonly [position: number, set: number])[];
}

/** Saves the demonstrations, so a resumed warm start learns from the same ones. */
export function saveDemonstrations(run: WarmStartFolder, demonstrations: readonly Demonstration[]): void {
  mkdirSync(run.warmStart, { recursive: true });
  const numbers = new Map<Int32Array, number>();
  const lines = demonstrations.map(({ tokenIds, lossMask, allowed }): DemonstrationLine => {
    const line = { token_ids: [...tokenIds], mask: lossMask.join('') };
    if (!allowed) return line;
    const sets = [...new Set(allowed.values())].filter(set => !numbers.has(set));
    for (const set of sets) numbers.set(set, numbers.size);
    const numbered = [...allowed].map(([position, set]) => [position, numbers.get(set)!] as const);
    return { ...line, sets: sets.map(set => [...set]), allowed: numbered };
  });
  writeJsonLines(join(run.warmStart, DEMONSTRATIONS_FILE), lines);
}

/** Reads the demonstrations of {@link saveDemonstrations}. */
export function readDemonstrations(run: WarmStartFolder): Demonstration[] {
  const lines = readJsonLines(join(run.warmStart, DEMONSTRATIONS_FILE)) as readonly DemonstrationLine[];
  const known: Int32Array[] = [];
  return lines.map(({ token_ids, mask, sets = [], allowed }) => {
    for (const set of sets) known.push(Int32Array.from(set));
    return {
      tokenIds: Int32Array.from(token_ids),
      lossMask: Uint8Array.from(mask, Number),
      ...(allowed ? { allowed: new Map(allowed.map(([position, set]) => [position, known[set]])) } : {}),
    };
  });
}

/** Complete folders, the furthest last. */
function progressFolders({ warmStart }: WarmStartFolder): string[] {
  if (!existsSync(warmStart)) return [];
  return readdirSync(warmStart)
    .filter(name => /^step-\d+$/.test(name))
    .sort((a, b) => Number(a.slice(5)) - Number(b.slice(5)))
    .map(name => join(warmStart, name));
}

export type WarmStartSettings = NonNullable<RunSettings['warm_start']>;

/** Negative log-likelihood of the demonstrated responses under the mask of sampling, averaged over their tokens. */
const SUPERVISED_LOSS: LossSettings = {
  ...DEFAULT_LOSS_SETTINGS,
  policy: 'cross_entropy',
  aggregation: 'token_mean',
  entropyCoefficient: 0,
};

interface WarmStartRun {
  readonly seed: number;
  readonly signal: AbortSignal;
  /** Position to continue from; the beginning when absent. */
  readonly start?: WarmStartPosition;
  /** Called after each optimizer step with the steps done and their total. */
  onUpdate?(done: number, total: number): void;
  /** Called with the mean loss of each epoch. */
  onEpoch?(epoch: number, metrics: Metrics): void | Promise<void>;
  /** Called with the position after each epoch but the last, and when it stops. */
  keep?(position: WarmStartPosition): Promise<void>;
}

/**
 * Supervised learning on demonstrations: AdamW with a warm-up and a cosine, for several epochs in separate orders. From
 * a kept position it continues as if it had never stopped.
 * @throws the signal's reason when it is aborted, before the next optimizer step
 */
export async function warmStart(
  policy: Pick<Policy, 'update'>,
  demonstrations: readonly Demonstration[],
  settings: WarmStartSettings,
  run: WarmStartRun,
): Promise<void> {
  const trained = demonstrations.filter(({ lossMask }) => countOnes(lossMask) > 0).map(supervisedSequence);
  const perEpoch = splitEvenly(trained, settings.batch_size).length;
  let updates = run.start?.updates ?? 0;
  let epochMetrics = [...(run.start?.epochMetrics ?? [])];
  const firstEpoch = perEpoch === 0 ? 0 : Math.floor(updates / perEpoch);
  for (let epoch = firstEpoch; epoch < settings.epochs; epoch++) {
    const learned = [...epochMetrics].values();
    const rated = {
      update: async (batch: Parameters<Policy['update']>[0], update: Parameters<Policy['update']>[1]) => {
        const { value: before } = learned.next();
        if (before) return before;
        if (run.signal.aborted) {
          await run.keep?.({ updates, epochMetrics });
          throw run.signal.reason;
        }
        const learningRate = learningRateAt(
          {
            peak: settings.learning_rate,
            warmup: settings.warmup_steps,
            total: settings.epochs * perEpoch,
            decay: 'cosine',
            finalShare: settings.final_share,
          },
          updates,
        );
        const optimizer = { ...update.optimizer, learningRate };
        const metrics = await policy.update(batch, { ...update, optimizer });
        updates++;
        epochMetrics.push(metrics);
        run.onUpdate?.(updates, settings.epochs * perEpoch);
        return metrics;
      },
    };
    const { metrics } = await updatePolicy(rated, trained, {
      settings: {
        loss: SUPERVISED_LOSS,
        temperature: 1,
        optimizer: {
          learningRate: 0,
          beta1: settings.beta1,
          beta2: settings.beta2,
          epsilon: 1e-8,
          weightDecay: settings.weight_decay,
          clipNorm: settings.clip_norm,
          ...(settings.muon && { muon: settings.muon }),
        },
      },
      epochs: 1,
      miniBatch: settings.batch_size,
      seed: mixSeed(run.seed, PURPOSE.warmStart, epoch),
    });
    epochMetrics = [];
    await run.onEpoch?.(epoch + 1, metrics);
    if (epoch + 1 < settings.epochs) await run.keep?.({ updates, epochMetrics });
  }
}

function supervisedSequence({ tokenIds, lossMask, allowed }: Demonstration): TrainingSequence {
  const { length } = tokenIds;
  return {
    tokenIds,
    lossMask,
    ...samplingMask({ allowed }),
    logProbs: new Float32Array(length),
    advantages: new Float32Array(length),
  };
}
