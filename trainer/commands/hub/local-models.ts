import { existsSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import type { RunSettings } from '../../config/settings.ts';
import { parseModelName, plainModelName, shownModelName } from '../../hub/cache.ts';
import { HubError, hubSettings } from '../../hub/hub-settings.ts';
import { fetchSnapshot } from '../../hub/snapshot.ts';
import { isAdapterFolder, isModelFolder, readAdapterConfig } from '../../policy/checkpoint/model-folder.ts';
import { type Progress, shownBytes } from '../../tracking/progress.ts';
import { latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { openRunFolder } from '../../training/run-folder/run-folder.ts';

/** Finds the local folders of hub models, downloading them if necessary. */
export interface HubModelOptions {
  readonly progress: Progress;
  readonly signal?: AbortSignal;
  /** Files to download; absent: all of a model. */
  readonly only?: (name: string) => boolean;
}

/** A model named by the user. */
export interface NamedModel {
  /** The name to record: a hub model with its commit, or the folder as given. */
  readonly name: string;
  readonly folder: string;
}

/**
 * The folder of a model named by its folder, or as `organization/name@revision` on a hub. An existing folder wins. An
 * adapter's base is included.
 * @param base folder of an adapter's base, when the caller sets it
 * @throws HubError with the remedy
 */
export async function localModel(
  named: string,
  options: HubModelOptions,
  base?: string,
): Promise<NamedModel> {
  const found = await fetched(named, options);
  if (base !== undefined || !(await isAdapterFolder(found.folder))) return found;
  const adapter = await readAdapterConfig(found.folder);
  const onHub = adapter.base !== null && parseModelName(adapter.base);
  const near = [adapter.base, adapter.base && join(found.folder, adapter.base)];
  if (onHub && !near.some(folder => folder && existsSync(folder))) {
    await fetched(shownModelName({ ...onHub, revision: adapter.revision ?? onHub.revision }), options);
  }
  return found;
}

async function fetched(named: string, { progress, signal, only }: HubModelOptions): Promise<NamedModel> {
  const model = parseModelName(named);
  if (model === undefined) return { name: named, folder: named };
  if (existsSync(named)) {
    if (await isModelFolder(named))
      progress.note(`${named}: the folder of this name here, not the model on the hub`);
    return { name: named, folder: named };
  }
  let began = false;
  try {
    const snapshot = await fetchSnapshot(model, {
      settings: hubSettings(),
      signal,
      ...(only ? { only } : {}),
      note: progress.note.bind(progress),
      progress: (bytes, total) => {
        if (!began) progress.begin(`download ${model.id}`, total, bytes);
        began = true;
        progress.update(bytes, { arrived: `${shownBytes(bytes)} of ${shownBytes(total)}` });
      },
    });
    return { name: shownModelName(snapshot.model), folder: snapshot.folder };
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    throw new HubError(`${named} is not a folder here, and as a model on the Hub: ${error.message}`, {
      cause: error,
      status: error.status,
    });
  } finally {
    if (began) progress.end();
  }
}

/** Settings with models named as on a hub. */
export interface LocalSettings {
  /** With each name at its commit: for the record, and to find the same model again. */
  readonly named: RunSettings;
  /** With folders: for use. */
  readonly local: RunSettings;
}

/**
 * Settings with local models.
 * @throws HubError with the remedy
 */
export async function localSettings(settings: RunSettings, options: HubModelOptions): Promise<LocalSettings> {
  const { policy } = settings;
  const found = async (name: string | null) => (name === null ? null : await localModel(name, options));
  const isRemote = policy.runtime === 'tinker';
  const init = policy.init === 'scratch' || isRemote ? null : await localModel(policy.init, options);
  const texts = { ...options, only: (name: string) => !name.endsWith('.safetensors') };
  const tokenizer = isRemote && policy.tokenizer ? await localModel(policy.tokenizer, texts) : null;
  const reference = await found(policy.reference);
  const critic = await found(policy.critic?.init ?? null);
  const withModels = (of: (model: NamedModel) => string): RunSettings => ({
    ...settings,
    policy: {
      ...policy,
      init: init === null ? policy.init : of(init),
      tokenizer: tokenizer === null ? policy.tokenizer : of(tokenizer),
      reference: reference && of(reference),
      critic: policy.critic && { ...policy.critic, init: critic && of(critic) },
    },
  });
  return { named: withModels(model => model.name), local: withModels(model => model.folder) };
}

/** Settings without revisions of hub models: a run keeps the commit to which its revision pointed at the start. */
export function withoutRevisions(settings: RunSettings): RunSettings {
  const { policy } = settings;
  const plain = (name: string): string => {
    const model = parseModelName(name);
    return model === undefined ? name : plainModelName(model);
  };
  const { critic, reference } = policy;
  return {
    ...settings,
    policy: {
      ...policy,
      init: plain(policy.init),
      reference: reference && plain(reference),
      critic: critic && { ...critic, init: critic.init && plain(critic.init) },
    },
  };
}

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
