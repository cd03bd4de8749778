import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { PYTHON } from '../../test/python.test-data.ts';

const PROGRAM = fileURLToPath(new URL('transformers_generate.py', import.meta.url));

/** A process that generates with transformers. */
export interface TransformersProcess {
  /** Tokens a second of a batch of this many prompts. */
  rate(prompts: number): Promise<number>;
  close(): void;
}

/** @returns undefined where the Python of RAGEN_PYTHON has no torch and transformers */
export async function startTransformers(
  folder: string,
  prompt: number,
  generated: number,
): Promise<TransformersProcess | undefined> {
  const child = spawn(PYTHON, [PROGRAM, folder, String(prompt), String(generated)], {
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  child.on('error', () => {});
  child.stdin.on('error', () => {});
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const read = async () => (await lines.next()).value as string | undefined;
  if ((await read()) === undefined) return undefined;
  return {
    async rate(prompts) {
      child.stdin.write(`${prompts}\n`);
      const line = await read();
      if (line === undefined) throw new Error('the program with transformers ended');
      return Number(line);
    },
    close: () => void child.kill(),
  };
}
