import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { lockSync } from 'proper-lockfile';
import { atEnd } from '../../shared/closing.ts';
import { attempted } from '../../shared/json.ts';
import { isAlive } from '../../shared/run-folder/is-alive.ts';
import { type GroupsRow, type RunStatus, SILENT_MS } from '../../shared/run-folder/run-files.ts';
import type { RunSettings } from '../config/settings.ts';
import { keepRows } from '../tracking/jsonlines.ts';
import type { Progress } from '../tracking/progress.ts';
import type { RunLog } from '../tracking/run-log.ts';
import { describeRun, RunStatusFile, validationPoint } from '../tracking/run-status.ts';
import { configuredSinks } from '../tracking/sinks.ts';
import { openTracker } from '../tracking/tracker.ts';
import { trainLoop } from './loop.ts';
import { type Checkpoint, latestCheckpoint, mendBestCheckpoint } from './run-folder/checkpoint.ts';
import { type RunSummary, writeReport } from './run-folder/report.ts';
import { RunControl } from './run-folder/run-control.ts';
import type { RunFolder } from './run-folder/run-folder.ts';
import { openRun, type RunStart } from './setup/open-run.ts';
import { readWarmStart, shownPosition } from './supervised/warm-start.ts';

/**
 * Trains to the end or until stopped; undefined when it was stopped before its first step or before it could resume.
 * @param log goes to the run's folder as soon as the run is this process's
 * @throws Error where another process trains this run
 */
export async function trainRun(
  run: RunFolder,
  settings: RunSettings,
  progress: Progress,
  stop: AbortSignal,
  log?: RunLog,
): Promise<RunSummary | undefined> {
  const { checkpoint, warmStart, status } = ownRun(run, () => {
    log?.open(run.log);
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
  keepRows<GroupsRow>(run.groups, row => row.step <= done.step);
  try {
    const shown = { progress: status.progress, tracker, status };
    using commands = new RunControl(run.path, status.startedAt, status.progress);
    const stops = AbortSignal.any([stop, commands.signal]);
    const summary = await trainTracked({
      run,
      settings,
      stop: stops,
      commands,
      checkpoint,
      warmStart,
      ...shown,
    });
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
  await using closing = new AsyncDisposableStack();
  const open = await openRun(start, closing);
  return open && writeReport(start.run, start.settings, await trainLoop(open.parts, open.state));
}

/**
 * Claims a run for this process: of several that begin at once, one reaches `begin`.
 * @param begin writes the status that names this process
 * @throws Error where another process on this machine trains the run: both would write to the same files
 */
export function ownRun<T>(run: Pick<RunFolder, 'path' | 'status'>, begin: () => T): T {
  const release = startAlone(run.path);
  using _lock = atEnd(() => release());
  refuseRunning(run);
  return begin();
}

/**
 * @returns a function that lets others start.
 * @throws Error while another process is between reading the status and writing its own
 */
function startAlone(path: string): () => void {
  try {
    return lockSync(path, { lockfilePath: join(path, 'starting.lock'), realpath: false });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ELOCKED') throw error;
    throw new Error(
      `another process is just about to train the run in ${path}: start another run with run.name, or try again in ten seconds`,
      { cause: error },
    );
  }
}

function refuseRunning(run: Pick<RunFolder, 'path' | 'status'>): void {
  const status = attempted(() => JSON.parse(readFileSync(run.status, 'utf8')) as RunStatus);
  if (status?.state !== 'running' || status.host !== hostname() || status.pid === process.pid) return;
  const { pid, pid_start = null, updated_at } = status;
  if (!isAlive(pid, pid_start)) return;
  // Without its start time, a process id that was silent for long may belong to another process by now.
  if (pid_start === null && Date.now() - Date.parse(updated_at) > SILENT_MS) return;
  throw new Error(
    `process ${pid} is training the run in ${run.path}: wait for it or stop it, or start another run with run.name`,
  );
}
