import { appendJsonLine, readJsonLines, writeJsonLines } from './jsonlines.ts';
import { TensorBoardWriter } from './tensorboard.ts';

/** Where the numbers of a run go. */
export interface Tracker {
  /** One row; several rows of the same step are fine as long as their names differ. */
  write(step: number, metrics: { readonly [name: string]: number }): void;
}

/**
 * Writes JSON Lines always and TensorBoard events where asked. Rows that an earlier session of the run wrote after
 * its last checkpoint are removed first: those steps will happen again and must not count twice.
 * @param doneSteps steps that the checkpoint holds; rows beyond it go
 * @param tensorboard folder of the event files, undefined for none
 */
export function openTracker(
  metricsFile: string,
  doneSteps: number,
  tensorboard: string | undefined,
): Tracker {
  const rows = readJsonLines(metricsFile) as { step: number }[];
  writeJsonLines(
    metricsFile,
    rows.filter(row => row.step <= doneSteps),
  );
  const board = tensorboard === undefined ? undefined : new TensorBoardWriter(tensorboard, doneSteps + 1);
  return {
    write(step, metrics) {
      appendJsonLine(metricsFile, { step, time: new Date().toISOString(), ...metrics });
      board?.write(step, metrics);
    },
  };
}
