import { RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import { type FoundRun, readRunText } from './run-folders.ts';

/** The trainer writes about 6 KiB. */
const MAX_CONFIG_BYTES = 128 * 1024;

/** The text of a run's `config.yaml`; undefined where it is missing, a link or too large. */
export const readConfig = (run: FoundRun): Promise<string | undefined> =>
  readRunText(run, MAX_CONFIG_BYTES, RUN_FILES.config);
