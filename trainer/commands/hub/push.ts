import { openAsBlob } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { allowedFiles } from '../../hub/allowed-files.ts';
import { hubSettings } from '../../hub/hub-settings.ts';
import { parseModelName } from '../../hub/model-name.ts';
import { publishModel } from '../../hub/publish.ts';
import { isAdapterFolder, readAdapterConfig } from '../../policy/checkpoint/adapter-folder.ts';
import { findServedModel } from '../../serve/find-model.ts';
import { openProgress, type Progress } from '../../tracking/progress.ts';
import { readCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { type CardParts, CURVE_FILE, modelCard, validationsOf } from './model-card.ts';
import { validationCurve } from './validation-curve.ts';

const CARD_FILE = 'README.md';
/** Files that only training needs. */
const LEFT_OUT = /^(optimizer|trainer)\.|^value_head\./;

export interface PushOptions {
  /** Makes a new repository private. */
  readonly private?: boolean;
  /** For the model card, e.g. `apache-2.0`. */
  readonly license?: string;
  readonly message?: string;
  readonly progress?: Progress;
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/**
 * The command `push`: sends a model or an adapter to a hub, with a model card made from its run.
 * @param target run (its newest checkpoint), checkpoint, or folder of a model or adapter
 * @param id `organization/name`
 * @returns the exit status
 * @throws Error or HubError saying what to do
 */
export async function push(target: string, id: string, options: PushOptions): Promise<number> {
  const { progress = openProgress(process.stderr), env } = options;
  if (parseModelName(id)?.id !== id) throw new Error(`push goes to organization/name, got ${id}`);
  const { folder, settings } = await findServedModel(target);
  const adapter = await isAdapterFolder(folder);
  const base = adapter ? (await readAdapterConfig(folder)).base : null;
  if (base !== null && parseModelName(base) === undefined) {
    progress.warn(
      `the adapter names its base by a folder of this machine (${base}): others cannot find it; merge it (merge-lora) or train it next to a model of the hub`,
    );
  }
  const files = allowedFiles(await readdir(folder), folder).filter(
    name => name !== CARD_FILE && !LEFT_OUT.test(name),
  );
  const run = settings && runOf(folder, settings);
  const card = modelCard({ id, adapter, base, license: options.license, run });
  const curve = run && validationCurve(validationsOf(run.folder));
  const pictures = curve === undefined ? [] : [{ name: CURVE_FILE, content: new Blob([curve]) }];
  const contents = await Promise.all(
    files.map(async name => ({ name, content: await openAsBlob(join(folder, name)) })),
  );
  progress.note(`pushing ${files.join(', ')} and a model card to ${id}`);
  const { url, commit } = await publishModel(
    {
      id,
      private: options.private,
      title: options.message ?? `Push ${basename(target)} with ragen`,
      files: [...contents, ...pictures, { name: CARD_FILE, content: new Blob([card]) }],
    },
    { settings: hubSettings(env), note: progress.note.bind(progress) },
  );
  console.log(`${url} (commit ${commit})`);
  return 0;
}

/** The run that a checkpoint's policy is of. */
function runOf(folder: string, settings: NonNullable<CardParts['run']>['settings']): CardParts['run'] {
  const checkpoint = dirname(folder);
  return { folder: dirname(dirname(checkpoint)), settings, step: readCheckpoint(checkpoint).state.step };
}
