import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { STARTED_BY_VARIABLE } from '../train/run-failure.ts';
import { type ChildProgram, childOf } from './child-process.ts';

const TRAINER = fileURLToPath(new URL('../../main.ts', import.meta.url));

/**
 * Starts the command `train` with our terminal.
 * @param startedBy the command of the user that goes on with it
 */
export function startTrainer(args: readonly string[], startedBy: string): ChildProgram {
  return childOf(
    spawn(process.execPath, [TRAINER, 'train', ...args], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      detached: true,
      env: { ...process.env, [STARTED_BY_VARIABLE]: startedBy },
    }),
  );
}
