import { join } from 'node:path';
import type { Json } from '../../shared/json.ts';
import type { RunSettings } from '../config/settings.ts';
import { MlflowRun } from './mlflow.ts';
import type { OpenSink } from './tracker.ts';
import { WandbRun } from './wandb/wandb.ts';

/**
 * The sinks of a run besides its own files: Weights & Biases and MLflow where the settings name them. They get the
 * settings without the servers' tokens.
 * @param folder of the run
 * @param note called when a sink fails, which never ends the run
 * @throws Error when a key is to come from an environment variable that is not set
 */
export function configuredSinks(
  folder: string,
  settings: RunSettings,
  note: (text: string) => void,
): OpenSink[] {
  const { wandb, mlflow } = settings.tracking;
  const name = settings.run.name ?? folder;
  const shown = { ...settings, servers: settings.servers.map(server => ({ ...server, token: null })) };
  const tracked = { name, config: shown as unknown as { readonly [key: string]: Json } };
  const sinks: OpenSink[] = [];
  if (wandb) sinks.push(rows => new WandbRun(join(folder, 'wandb'), wandb, tracked, rows));
  if (mlflow) {
    const { url, experiment, token_env } = mlflow;
    const token = token_env === null ? undefined : process.env[token_env];
    if (token_env !== null && !token) {
      throw new Error(`tracking.mlflow.token_env: the environment variable ${token_env} is not set`);
    }
    const server = { url, experiment, token };
    sinks.push(() => new MlflowRun(server, tracked, join(folder, 'mlflow.json'), note));
  }
  return sinks;
}
