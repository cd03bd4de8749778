import { appendJsonLine, readJsonLines, writeJsonLines } from './jsonlines.ts';
import { TensorBoardWriter } from './tensorboard.ts';

/** Every row of a validation has it. */
const VALIDATION_MARK = 'val-env/success';

/** Takes the numbers of a run. */
export interface MetricSink {
  /** One row; several rows of the same step are fine as long as their names differ. */
  write(step: number, metrics: { readonly [name: string]: number }): void;
  /** Sends what is still waiting; nothing can be written afterwards. */
  close(): Promise<void>;
}

/** Where the numbers of a run go. */
export type Tracker = MetricSink;

/** A sink that is opened once it is known how many rows the run has written before. */
export type OpenSink = (rows: number) => MetricSink;

/**
 * Writes JSON Lines always, TensorBoard events where asked, and whatever else is given. Rows that an earlier session of the
 * run wrote after its last checkpoint are removed first: what they tell of will happen again and must not count twice.
 * @param done the last step and the last validation that the checkpoint knows; −1 for none
 * @param tensorboard folder of the event files, undefined for none
 */
export function openTracker(
  metricsFile: string,
  done: { readonly step: number; readonly validation: number },
  tensorboard: string | undefined,
  more: readonly OpenSink[] = [],
): Tracker {
  const rows = readJsonLines(metricsFile) as { step: number }[];
  writeJsonLines(
    metricsFile,
    rows.filter(row => row.step <= (VALIDATION_MARK in row ? done.validation : done.step)),
  );
  const board = tensorboard === undefined ? undefined : new TensorBoardWriter(tensorboard, done.step + 1);
  const sinks = more.map(open => open(rows.length));
  return {
    write(step, metrics) {
      appendJsonLine(metricsFile, { step, time: new Date().toISOString(), ...metrics });
      board?.write(step, metrics);
      for (const sink of sinks) sink.write(step, metrics);
    },
    async close() {
      await Promise.all(sinks.map(sink => sink.close()));
    },
  };
}
