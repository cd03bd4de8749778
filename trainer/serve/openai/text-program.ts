import { Script } from 'node:vm';
import { tokenizerFromFiles } from '../../models/tokenizer/load.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { type FromTextProgram, perform, type ToTextProgram } from './prompt-encoder.ts';

/**
 * The program of a {@link TextProcess}: it does one job after the other with the tokenizer in the first message.
 * Patterns and templates are untrusted, so a job ends at its time limit; one that fills the memory ends the process.
 */

/** Global name under which {@link SCRIPT} finds its work. */
const WORK = 'ragenTextWork';
const SCRIPT = new Script(`globalThis.${WORK}()`);

/**
 * Runs work and interrupts it at its limit, even while a pattern matches.
 * @throws Error with a code at the limit
 */
function within<T>(limitMs: number, work: () => T): T {
  (globalThis as { [name: string]: unknown })[WORK] = work;
  return SCRIPT.runInThisContext({ timeout: Math.ceil(limitMs) }) as T;
}

let tokenizer: Tokenizer;
process.on('message', (message: ToTextProgram) => {
  const reply = (out: FromTextProgram) => process.send!(out);
  try {
    const value = within(message.limitMs, () => {
      if ('job' in message) return perform(message.job, tokenizer);
      tokenizer = tokenizerFromFiles(message.files, 'the tokenizer');
      return null;
    });
    reply({ value });
  } catch (error) {
    const { code, message: why } = error as NodeJS.ErrnoException;
    reply(code === 'ERR_SCRIPT_EXECUTION_TIMEOUT' ? { overLimit: true } : { error: why });
  }
});
process.once('disconnect', () => process.exit());
