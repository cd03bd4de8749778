import { appendJsonLine, reopenJsonLines, writeJsonLines } from './jsonlines.ts';
import { TensorBoardWriter } from './tensorboard.ts';

/** Every row of a validation has it. */
const VALIDATION_MARK = 'val-env/success';

/** Names of a validation's tables begin with it. */
const VALIDATION_TABLES = 'val/';

/** Takes the numbers of a run. */
export interface MetricSink {
  /** One row; several rows of the same step are fine as long as their names differ. */
  write(step: number, metrics: { readonly [name: string]: number }): void;
  /** Sends what is still waiting; nothing can be written afterwards. */
  close(): Promise<void>;
}

/** Rows under named columns, for results that are more than one number. */
export interface MetricTable {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly (string | number)[])[];
}

/** Receiver of a run's numbers and tables. */
export interface Tracker extends MetricSink {
  /** A table, for the run's own file of tables alone. */
  writeTable(step: number, name: string, table: MetricTable): void;
}

/** A sink that is opened once it is known how many rows the run has written before. */
export type OpenSink = (rows: number) => MetricSink;

/**
 * Writes JSON Lines always, TensorBoard events where asked, and any other given sinks. Rows that an earlier session of the
 * run wrote after its last checkpoint are removed first: those steps will run again and must not count twice.
 * @param files JSON Lines of metrics and of tables
 * @param done the last step and the last validation that the checkpoint knows; −1 for none
 * @param tensorboard folder of the event files, undefined for none
 */
export function openTracker(
  files: { readonly metrics: string; readonly tables: string },
  done: { readonly step: number; readonly validation: number },
  tensorboard: string | undefined,
  more: readonly OpenSink[] = [],
): Tracker {
  const rows = reopenJsonLines(files.metrics) as { step: number }[];
  writeJsonLines(
    files.metrics,
    rows.filter(row => row.step <= (VALIDATION_MARK in row ? done.validation : done.step)),
  );
  const tables = reopenJsonLines(files.tables) as { step: number; name: string }[];
  if (tables.length > 0) {
    const isValidation = (name: string) => name.startsWith(VALIDATION_TABLES);
    writeJsonLines(
      files.tables,
      tables.filter(({ step, name }) => step <= (isValidation(name) ? done.validation : done.step)),
    );
  }
  const board = tensorboard === undefined ? undefined : new TensorBoardWriter(tensorboard, done.step + 1);
  const sinks = more.map(open => open(rows.length));
  return {
    write(step, metrics) {
      appendJsonLine(files.metrics, { step, time: new Date().toISOString(), ...metrics });
      board?.write(step, metrics);
      for (const sink of sinks) sink.write(step, metrics);
    },
    writeTable(step, name, table) {
      appendJsonLine(files.tables, { step, name, ...table });
    },
    async close() {
      await Promise.all(sinks.map(sink => sink.close()));
    },
  };
}
