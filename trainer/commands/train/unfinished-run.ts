import { latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { latestRun, openRunFolder } from '../../training/run-folder/run-folder.ts';
import { readWarmStart, shownPosition } from '../../training/supervised/warm-start-progress.ts';

export interface UnfinishedRun {
  readonly path: string;
  /** Position from which it resumes, for people. */
  readonly position: string;
}

/** The newest run under a folder with the name `name` or `name-NNN`, where it has kept something and is not over. */
export function unfinishedRun(folder: string, name: string): UnfinishedRun | undefined {
  const path = latestRun(folder, name);
  if (path === undefined) return undefined;
  const { run, settings } = openRunFolder(path);
  const checkpoint = latestCheckpoint(run);
  if (checkpoint) {
    const { step } = checkpoint.state;
    return step < settings.training.steps ? { path, position: `at step ${step}` } : undefined;
  }
  const warmStart = readWarmStart(run);
  if (!warmStart) return undefined;
  return { path, position: shownPosition(warmStart.state) };
}
