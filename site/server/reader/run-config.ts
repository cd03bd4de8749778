import { parse } from 'yaml';
import { RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import { type FoundRun, readRunText } from './run-folders.ts';

/** The trainer writes about 6 KiB. */
const MAX_CONFIG_BYTES = 128 * 1024;

/** The text of a run's `config.yaml`; undefined where it is missing, a link or too large. */
export const readConfig = (run: FoundRun): Promise<string | undefined> =>
  readRunText(run, MAX_CONFIG_BYTES, RUN_FILES.config);

/**
 * Parses YAML by others, in time linear in its length: no aliases, which can grow without end, and no comparison of
 * each key with all others. The last of equal keys counts.
 * @throws Error
 */
export const parseYaml = (text: string): unknown =>
  parse(text, { maxAliasCount: 0, uniqueKeys: false, logLevel: 'error' });
