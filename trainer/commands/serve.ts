import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { availableParallelism } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { listenOnPort } from '../../shared/http/addresses.ts';
import { baseFolder } from '../config/derived.ts';
import { parseModelName } from '../hub/cache.ts';
import { playedPrecision } from '../models/frozen-weights.ts';
import { createServeApp } from '../serve/app.ts';
import { Models } from '../serve/models.ts';
import { TinkerServer } from '../serve/tinker/server.ts';
import { openProgress } from '../tracking/progress.ts';
import { findServedModel, localModel } from './hub/local-models.ts';
import type { OptionsOf } from './options.ts';
import { stopRequests } from './processes/child-program.ts';

/** Environment variables that hold tokens: other users could read them on a command line. */
const TOKEN_VARIABLE = 'RAGEN_SERVE_TOKEN';
const ADMIN_TOKEN_VARIABLE = 'RAGEN_SERVE_ADMIN_TOKEN';

/** Longest wait for threads to end before a failed start is reported, in milliseconds. */
const LONGEST_CLOSING_MS = 2000;

/**
 * The command `serve`: serves a policy through OpenAI's API until it is stopped, and with `tinker` also through the
 * Tinker API.
 * @param target run, checkpoint or model folder
 * @returns the exit status
 */
export async function serve(target: string, options: OptionsOf<'serve'>): Promise<number> {
  const { host, port, maxStreams, logLevel } = options;
  const adapters = (options.adapter ?? []).map(parseAdapter);
  const onHub = { progress: openProgress(process.stderr) };
  const named = await localModel(target, onHub, options.base);
  const { folder, name, settings } = await findServedModel(named.folder);
  if (settings?.policy.runtime === 'tinker') {
    throw new Error(
      `the weights of ${target} are at the Tinker server ${settings.policy.tinker?.url}: evaluate plays with them, and its own tools export them`,
    );
  }
  const given = options.base ?? (settings && baseFolder(settings));
  const base = given === undefined ? undefined : (await localModel(given, onHub)).folder;
  const onlyOnHub = named.folder !== target;
  const modelName = options.name ?? (onlyOnHub ? parseModelName(target)?.id : undefined);
  const policy = {
    workers: options.workers ?? settings?.policy.workers ?? availableParallelism(),
    threads: options.threads ?? settings?.policy.threads,
    runtime: options.runtime ?? settings?.policy.runtime,
    precision: settings?.policy.precision,
    basePrecision: settings && playedPrecision(settings.policy.base_precision),
    maxSequenceLength: options.context ?? settings?.policy.context,
    maxOpenSequences: maxStreams,
  };
  const { maxAdapters, maxModels, checkpoints, maxCheckpointMb } = options;
  const models = await Models.open({ folder, name: modelName ?? name, base, maxAdapters, policy });
  try {
    for (const adapter of adapters) {
      await models.load(adapter.name, (await localModel(adapter.folder, onHub, folder)).folder);
    }
    const training = { models, policy, folder, name: modelName, maxModels, checkpoints, maxCheckpointMb };
    const app = createServeApp({
      models,
      tinker: options.tinker ? new TinkerServer(training) : undefined,
      maxStreams,
      logLevel,
      host,
      token: process.env[TOKEN_VARIABLE],
      adminToken: process.env[ADMIN_TOKEN_VARIABLE],
    });
    await listenOnPort(port, true, port => app.listen({ host, port }));
    using requests = stopRequests(() => console.log('stopping'));
    const { signal: stop } = requests;
    const { port: bound } = app.server.address() as AddressInfo;
    const shown = host.includes(':') ? `[${host}]` : host;
    console.log(
      `serving ${models.all.map(model => model.name).join(', ')} on http://${shown}:${bound}/v1 (${models.base.policy.description})`,
    );
    if (!stop.aborted) await once(stop, 'abort');
    await app.close();
    return 0;
  } catch (error) {
    await Promise.race([models.close(), pause(LONGEST_CLOSING_MS, undefined, { ref: false })]);
    throw error;
  }
}

function parseAdapter(text: string): { readonly name: string; readonly folder: string } {
  const split = text.indexOf('=');
  if (split < 1 || split === text.length - 1) {
    throw new Error(
      `--adapter is written name=folder, e.g. --adapter tuned=runs/lora-001/checkpoints/step-000100/policy, got ${text}`,
    );
  }
  return { name: text.slice(0, split), folder: text.slice(split + 1) };
}
