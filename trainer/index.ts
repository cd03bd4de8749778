/** Training from a program: `import { loadRunSettings, trainRun } from 'ragen/trainer'`. */
export { ConfigError } from '../shared/config.ts';
export { VERSION } from '../shared/program.ts';
export { loadRunSettings } from './config/load.ts';
export { RunSettings } from './config/settings.ts';
export { openProgress, type Progress, silentProgress } from './tracking/progress.ts';
export { trainRun } from './training/run.ts';
export type { RunSummary } from './training/run-folder/report.ts';
export { createRunFolder, openRunFolder, type RunFolder } from './training/run-folder/run-folder.ts';
export { withFittedContext } from './training/setup/first-prompts.ts';
