import { existsSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import type { RunSettings } from '../config/settings.ts';
import { readModelTextIfThere } from '../models/files/model-file.ts';
import { endTokenIds, GENERATION_CONFIG_FILE } from '../models/tokenizer/load.ts';
import { isModelFolder } from '../policy/checkpoint/model-folder.ts';
import { latestCheckpoint } from '../training/run-folder/checkpoint.ts';
import { openRunFolder } from '../training/run-folder/run-folder.ts';

const POLICY_FOLDER = 'policy';

/** A model or adapter to serve. */
export interface FoundModel {
  /** Folder of a model or an adapter. */
  readonly folder: string;
  /** Name for requests unless `serve` sets another. */
  readonly name: string;
  /** Settings of the run it is from; undefined for a folder from elsewhere. */
  readonly settings?: RunSettings;
}

/**
 * The model that a path names: a run's newest checkpoint, a checkpoint, or a model's or adapter's folder.
 * @throws Error saying what was looked for
 */
export async function findServedModel(path: string): Promise<FoundModel> {
  const folder = resolve(path);
  if (existsSync(join(folder, 'config.yaml'))) {
    const { run, settings } = openRunFolder(folder);
    const checkpoint = latestCheckpoint(run);
    if (checkpoint === undefined)
      throw new Error(`${path} is a run without a checkpoint: nothing to serve yet`);
    return { folder: checkpoint.policy, name: basename(folder), settings };
  }
  const policy = join(folder, POLICY_FOLDER);
  const inCheckpoint = basename(folder) === POLICY_FOLDER ? dirname(folder) : folder;
  const model = (await isModelFolder(folder)) ? folder : policy;
  if (!(await isModelFolder(model))) {
    throw new Error(
      `${path} is neither a run (config.yaml) nor a checkpoint (policy/) nor a model (config.json or adapter_config.json)`,
    );
  }
  const run = dirname(dirname(inCheckpoint));
  const ofRun = basename(dirname(inCheckpoint)) === 'checkpoints' && existsSync(join(run, 'config.yaml'));
  if (!ofRun) return { folder: model, name: basename(inCheckpoint) };
  return { folder: model, name: basename(run), settings: openRunFolder(run).settings };
}

/** Tokens that end a response by the folder's `generation_config.json`; none where it has no such file. */
export async function generationStops(folder: string): Promise<readonly number[]> {
  const text = await readModelTextIfThere(join(folder, GENERATION_CONFIG_FILE));
  return text === undefined ? [] : endTokenIds({ files: { [GENERATION_CONFIG_FILE]: text } });
}
