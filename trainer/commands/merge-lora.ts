import { readLogLevel } from '../../shared/log.ts';
import type { WritableType } from '../models/files/stored-numbers.ts';
import { mergeAdapter } from '../policy/checkpoint/merge-adapter.ts';
import { openProgress } from '../tracking/progress.ts';
import { localModel } from './hub/local-models.ts';

const TYPES: readonly WritableType[] = ['F32', 'BF16'];

export interface MergeLoraOptions {
  /** Folder to write the whole model to. */
  readonly out: string;
  /** Folder of the base; where the adapter's config says, when absent. */
  readonly base?: string;
  /** Type of the written numbers: `F32` or `BF16`; that of the base when absent. */
  readonly type?: string;
}

/**
 * The command `merge-lora`: writes base and adapter as one model, which needs the adapter no more.
 * @returns the exit status
 * @throws Error saying what is missing
 */
export async function mergeLora(adapter: string, { out, base, type }: MergeLoraOptions): Promise<number> {
  const known = TYPES.find(name => name === type);
  if (type !== undefined && known === undefined) {
    throw new Error(`--type is one of ${TYPES.join(', ')}, got ${type}`);
  }
  const options = { progress: openProgress(process.stderr, readLogLevel()) };
  const named = base === undefined ? undefined : await localModel(base, options);
  const { folder } = await localModel(adapter, options, base);
  const merged = await mergeAdapter(folder, out, { base: named?.folder, type: known });
  console.log(`${out}: ${adapter} merged into its base, ${merged} matrices`);
  return 0;
}
