import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { mergeConfig, validateConfig } from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { checkRunSettings } from '../config/load.ts';
import { RunSettings } from '../config/settings.ts';
import { serve } from '../rollout/server.test-data.ts';
import { readJsonLines } from '../tracking/jsonlines.ts';
import { type Progress, silentProgress } from '../tracking/progress.ts';
import { trainRun } from './run.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import { createRunFolder, type RunFolder } from './run-folder/run-folder.ts';

/** A file of runs takes seconds of processor time; a busy machine may need longer. */
export const MAX_MS = 900_000;

/** A row of metrics. */
export type Row = { readonly [name: string]: number };

/** A run of a few seconds: a tiny policy, sixteen episodes an iteration. */
const TINY = {
  tags: { Lake: { env_id: 'FrozenLake-v0', max_turn: 3 } },
  train_tags: ['Lake'],
  policy: {
    hidden_size: 16,
    layers: 1,
    heads: 2,
    intermediate_size: 32,
    context: 100,
    workers: 1,
    initializer_range: 0.2,
  },
  rollout: { env_groups: 4, group_size: 4, think: false, response_length: 6 },
  algorithm: { advantage: 'grpo', mini_batch_size: 8 },
  optimizer: { learning_rate: 1e-3 },
  training: { steps: 2, validate_first: false, validate_every: 50, checkpoint_every: 50 },
  validation: { episodes: 4 },
  tracking: { tensorboard: false, trajectories_every: 0 },
} satisfies Json;

/** Settings of a tiny run, checked, with what is given instead. */
export function tinySettings(url: string, folder: string, name: string, over: Json = {}): RunSettings {
  const place = { servers: [{ url }], run: { folder, name } };
  const settings = validateConfig(mergeConfig(mergeConfig(TINY, place), over), RunSettings);
  checkRunSettings(settings, 'test');
  return settings;
}

/** Trains a tiny run in a separate folder. */
export async function trainTiny(
  settings: RunSettings,
  progress: Progress = silentProgress,
  stop: AbortSignal = new AbortController().signal,
): Promise<RunFolder> {
  const run = createRunFolder(settings, 'tiny');
  await trainRun(run, settings, progress, stop);
  return run;
}

/** Continues with a run from its folder. */
export const resumeTiny = (run: RunFolder, settings: RunSettings) =>
  trainRun(run, settings, silentProgress, new AbortController().signal);

/** Trains a run to a step, and then continues from its folder to the end. */
export async function trainInTwo(settings: RunSettings, at: number): Promise<RunFolder> {
  const stop = new AbortController();
  const half = {
    ...silentProgress,
    update: (done: number) => done === at && stop.abort(new DOMException('stop', 'AbortError')),
  };
  const run = await trainTiny(settings, half, stop.signal);
  await resumeTiny(run, settings);
  return run;
}

/** Tiny runs in one folder against one environment server. */
export async function tinyRuns(t: Test) {
  const [{ name: url }] = (await serve(t)).servers;
  const folder = t.testdir();
  const settings = (name: string, over?: Json) => tinySettings(url, folder, name, over);
  return {
    url,
    folder,
    settings,
    train: (name: string, over?: Json, progress?: Progress) => trainTiny(settings(name, over), progress),
    trainInTwo: (name: string, over: Json, at: number) => trainInTwo(settings(name, over), at),
  };
}

/** Rows of the training steps. */
export function trainingRows(run: RunFolder): Row[] {
  return (readJsonLines(run.metrics) as Row[]).filter(row => 'train/success' in row);
}

export function weightsOf(run: RunFolder): Buffer {
  return readFileSync(join(latestCheckpoint(run)!.policy, 'model.safetensors'));
}

/** Metrics without those that depend on the clock and on how episodes were collected. */
export function learnedMetrics(row: Row): Row {
  const dependent = /^(time|timing_s|perf|rollouter|trainer|training\/seconds|stale|errored)/;
  return Object.fromEntries(Object.entries(row).filter(([name]) => !dependent.test(name)));
}
