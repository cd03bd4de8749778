import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { type ChildProgram, childOf } from './child-process.ts';

const TRAINER = fileURLToPath(new URL('../../main.ts', import.meta.url));

/** Starts the command `train` with our terminal. */
export function startTrainer(args: readonly string[]): ChildProgram {
  return childOf(
    spawn(process.execPath, [TRAINER, 'train', ...args], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      detached: true,
    }),
  );
}
