import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { runFolderAt } from '../../trainer/training/run-folder/run-folder.ts';

export const ROOT = resolve(import.meta.dirname, '../..');

/** Runs the trainer in a separate process to its end; without us it stops with a checkpoint. @returns its exit status */
export function runTrainer(
  args: readonly string[],
  output: 'inherit' | 'ignore' = 'inherit',
): Promise<number | null> {
  return new Promise((done, reject) => {
    const child = spawn(process.execPath, [join(ROOT, 'trainer/main.ts'), ...args], {
      cwd: ROOT,
      stdio: ['ignore', output, 'inherit', 'ipc'],
    });
    child.once('error', reject);
    child.once('exit', done);
  });
}

/** Like {@link runTrainer}. @throws Error for a run that ends with another status than 0 */
export async function completeRun(args: readonly string[], output?: 'inherit' | 'ignore'): Promise<void> {
  const status = await runTrainer(args, output);
  if (status === 0) return;
  throw new Error(`the trainer ended with status ${status} (${args.join(' ')}); the same command continues`);
}

export interface PlannedRun {
  readonly command: 'train' | 'sft';
  readonly config: string;
  readonly overrides: readonly string[];
  /** Folder of the runs, and the run's name in it. */
  readonly folder: string;
  readonly name: string;
  /** Address of the environment server. */
  readonly server: string;
}

/** Arguments of the trainer for a run: from its beginning, or from where it is. */
export function trainerArguments({ command, config, overrides, folder, name, server }: PlannedRun): string[] {
  const path = join(folder, name);
  const servers = `servers=${JSON.stringify([{ url: server }])}`;
  if (existsSync(runFolderAt(path).config)) return ['train', '--resume', path, servers, '--quiet'];
  const place = [`run.folder=${JSON.stringify(folder)}`, `run.name=${name}`, servers];
  return [command, config, ...overrides, ...place, '--quiet'];
}
