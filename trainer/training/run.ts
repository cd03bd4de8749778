import type { RunSettings } from '../config/settings.ts';
import { dropGroupRows } from '../tracking/group-rows.ts';
import type { Progress } from '../tracking/progress.ts';
import { describeRun, RunStatusFile, validationPoint } from '../tracking/run-status.ts';
import { configuredSinks } from '../tracking/sinks.ts';
import { openTracker } from '../tracking/tracker.ts';
import { trainLoop } from './loop.ts';
import { type Checkpoint, latestCheckpoint, mendBestCheckpoint } from './run-folder/checkpoint.ts';
import { type RunSummary, writeReport } from './run-folder/report.ts';
import type { RunFolder } from './run-folder/run-folder.ts';
import { ownRun } from './run-folder/run-ownership.ts';
import { openRun, type RunStart } from './setup/open-run.ts';
import { readWarmStart, shownPosition } from './supervised/warm-start-progress.ts';

/**
 * Trains to the end or until stopped; undefined when it was stopped before its first step or before it could resume.
 * @throws Error where another process trains this run
 */
export async function trainRun(
  run: RunFolder,
  settings: RunSettings,
  progress: Progress,
  stop: AbortSignal,
): Promise<RunSummary | undefined> {
  const { checkpoint, warmStart, status } = ownRun(run, () => {
    mendBestCheckpoint(run);
    const checkpoint = latestCheckpoint(run);
    const warmStart = checkpoint || !settings.warm_start ? undefined : readWarmStart(run);
    return { checkpoint, warmStart, status: openStatus(run, settings, progress, checkpoint) };
  });
  if (checkpoint) progress.note(`resuming ${run.path} at step ${checkpoint.state.step}`);
  else if (warmStart) progress.note(`resuming ${run.path} ${shownPosition(warmStart.state)}`);
  else progress.note(`run folder ${run.path}`);
  const done = {
    step: checkpoint?.state.step ?? -1,
    validation: checkpoint?.state.validations.at(-1)?.step ?? -1,
  };
  const tracker = openTracker(run, done, settings.tracking.tensorboard ? run.tensorboard : undefined, [
    () => status.sink,
    ...configuredSinks(run.path, settings, progress.warn),
  ]);
  dropGroupRows(run.groups, done.step);
  try {
    const shown = { progress: status.progress, tracker, status };
    const summary = await trainTracked({ run, settings, stop, checkpoint, warmStart, ...shown });
    status.end(!summary || summary.ended === 'stopped' ? 'stopped' : 'finished');
    return summary;
  } catch (error) {
    status.end('failed', error as Error);
    throw error;
  } finally {
    await tracker.close();
  }
}

function openStatus(
  run: RunFolder,
  settings: RunSettings,
  progress: Progress,
  checkpoint: Checkpoint | undefined,
): RunStatusFile {
  const description = describeRun(settings);
  const validations = (checkpoint?.state.validations ?? []).flatMap(
    ({ step, metrics }) => validationPoint(step, metrics, description) ?? [],
  );
  return new RunStatusFile(run.status, settings, progress, validations);
}

async function trainTracked(start: RunStart): Promise<RunSummary | undefined> {
  const closing = new AsyncDisposableStack();
  try {
    const open = await openRun(start, closing);
    return open && writeReport(start.run, start.settings, await trainLoop(open.parts, open.state));
  } finally {
    await closing.disposeAsync();
  }
}
