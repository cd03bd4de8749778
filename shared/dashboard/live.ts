import { PassThrough } from 'node:stream';
import { objectOn, readLines } from './reader/lines.ts';
import { type FoundRun, openRunFile } from './reader/run-folders.ts';
import type { RunReader } from './reader/run-reader.ts';
import { RUN_FILES } from './run-files.ts';

/** Between two looks at a run's files. */
const LOOK_EVERY_MS = 250;
/** A line without meaning that keeps the connection open through proxies. */
const KEEP_OPEN_MS = 15_000;
const MAX_STREAMS = 64;
const LONGEST_ROW_BYTES = 4 * 1024 * 1024;
/** More that is new is not sent row by row: the page reads the metrics again. */
const MAX_BACKLOG_BYTES = 1024 * 1024;
/** A reader that does not read is waited for from here on. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;

/**
 * What happens in a run, as server-sent events: `metrics` (rows), `replaced` (metrics are to be read again), `row` (of the table
 * of runs), `files`.
 */
export class LiveRun {
  readonly #run: FoundRun;
  readonly #reader: RunReader;
  #offset: number;
  #row = '';
  #files = '';

  /** @param offset first byte of the metrics that the page does not have */
  constructor(run: FoundRun, reader: RunReader, offset: number) {
    this.#run = run;
    this.#reader = reader;
    this.#offset = offset;
  }

  /** What is new since the last look. */
  async look(): Promise<string> {
    const events: string[] = [];
    const rows = await this.#newRows();
    if (rows === 'replaced') events.push(event('replaced', { offset: this.#offset }));
    else if (rows.length > 0) events.push(event('metrics', { rows, offset: this.#offset }));
    const found = await this.#reader.find(this.#run.id);
    if (!found) return events.join('');
    const row = await this.#reader.row(found);
    const rowText = JSON.stringify(row);
    if (rowText !== this.#row) events.push(event('row', row));
    this.#row = rowText;
    const files = await this.#reader.files(this.#run.id);
    const filesText = JSON.stringify(files);
    if (filesText !== this.#files) events.push(event('files', files));
    this.#files = filesText;
    return events.join('');
  }

  async #newRows(): Promise<object[] | 'replaced'> {
    const file = await openRunFile(this.#run, RUN_FILES.metrics);
    if (!file) return [];
    try {
      const { size } = file.stats;
      if (size < this.#offset || size - this.#offset > MAX_BACKLOG_BYTES) {
        this.#offset = (await this.#reader.table(this.#run)).offset;
        return 'replaced';
      }
      const rows: object[] = [];
      this.#offset = await readLines(file.handle, this.#offset, LONGEST_ROW_BYTES, line => {
        const row = objectOn(line);
        if (row) rows.push(row);
      });
      return rows;
    } finally {
      await file.handle.close();
    }
  }
}

function event(name: string, data: unknown): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** The streams that are open. */
export class LiveRuns {
  readonly #streams = new Set<PassThrough>();

  /** Starts to look at a run; undefined when too many are looked at. Looking ends with the stream. */
  open(run: LiveRun): PassThrough | undefined {
    if (this.#streams.size >= MAX_STREAMS) return undefined;
    const stream = new PassThrough();
    this.#streams.add(stream);
    let looking = false;
    let wroteAt = performance.now();
    const look = async () => {
      if (looking || stream.destroyed || stream.writableLength > MAX_WAITING_BYTES) return;
      looking = true;
      try {
        const text = await run.look();
        const idle = performance.now() - wroteAt > KEEP_OPEN_MS;
        if (stream.destroyed || (text === '' && !idle)) return;
        stream.write(text === '' ? ': still here\n\n' : text);
        wroteAt = performance.now();
      } catch (error) {
        stream.destroy(error as Error);
      } finally {
        looking = false;
      }
    };
    const timer = setInterval(look, LOOK_EVERY_MS);
    stream.once('close', () => {
      clearInterval(timer);
      this.#streams.delete(stream);
    });
    stream.write(': open\n\n');
    void look();
    return stream;
  }

  close(): void {
    for (const stream of this.#streams) stream.end();
  }
}
