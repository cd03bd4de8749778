import { type FSWatcher, watch } from 'node:fs';
import { PassThrough } from 'node:stream';
import { attempted } from '../../shared/json.ts';
import { RUN_FILES } from '../../shared/run-folder/run-files.ts';
import { MAX_ROW_BYTES, objectOn, readLines } from './reader/lines.ts';
import { LogTail } from './reader/log-tail.ts';
import { type FoundRun, openRunFile } from './reader/run-folders.ts';
import type { RunReader } from './reader/run-reader.ts';

/** Milliseconds between two looks at a run's files without a notice of the system: network disks give none. */
const LOOK_EVERY_MS = 250;
/** Milliseconds from a notice to the look, so that a row written in parts is one look. */
const LOOK_SOON_MS = 20;
/** A comment line that keeps the connection open through proxies. */
const KEEP_OPEN_MS = 15_000;
const MAX_STREAMS = 512;
/** With more new rows than this, the page reads the metrics again. */
const MAX_BACKLOG_BYTES = 256 * 1024;
/** A reader with more unread bytes is disconnected; its page reconnects where it stopped. */
const MAX_WAITING_BYTES = 1024 * 1024;

function event(name: string, data: unknown): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** The run's folder is not there any more; a row follows where it comes back. */
const GONE = event('gone', {});

/**
 * Events of a run as server-sent events: `metrics` (rows), `replaced` (read the metrics again), `row` (of the table of
 * runs), `files`, `log`, `gone`. The files are read once for all pages that show the run.
 */
class WatchedRun {
  readonly #run: FoundRun;
  readonly #reader: RunReader;
  readonly #log: LogTail;
  /** All streams, and those that have caught up. */
  readonly #members = new Set<PassThrough>();
  readonly #streams = new Set<PassThrough>();
  readonly #timer: NodeJS.Timeout;
  readonly #notices: FSWatcher | undefined;
  #soon: NodeJS.Timeout | undefined;
  /** First byte of the metrics that the streams lack; undefined before the first stream has joined. */
  #offset: number | undefined;
  #inode = 0;
  #row = '';
  #files = '';
  #looking: Promise<void> | undefined;
  #wroteAt = performance.now();

  constructor(run: FoundRun, reader: RunReader) {
    this.#run = run;
    this.#reader = reader;
    this.#log = new LogTail(run);
    const look = () => this.#offset !== undefined && void this.#look();
    this.#timer = setInterval(look, LOOK_EVERY_MS);
    this.#notices = noticesOf(run.path, () => {
      this.#soon ??= setTimeout(() => {
        this.#soon = undefined;
        look();
      }, LOOK_SOON_MS);
    });
  }

  /** @param from first byte of the metrics that the page lacks */
  async join(stream: PassThrough, from: number): Promise<void> {
    this.#members.add(stream);
    stream.write(': open\n\n');
    this.#offset ??= from;
    await this.#look();
    // The file has become shorter since the page read it.
    if (from > this.#offset) stream.write(event('replaced', { offset: this.#offset }));
    // While a long file is read the other streams may have moved on.
    for (let at = from; at < this.#offset; ) {
      const { text, offset } = await this.#read(at, this.#offset);
      if (stream.destroyed) return;
      stream.write(text);
      at = Math.max(offset, at + 1);
    }
    if (stream.destroyed) return;
    const { lines } = this.#log;
    stream.write(this.#row + this.#files + (lines.length === 0 ? '' : event('log', { lines, whole: true })));
    this.#streams.add(stream);
  }

  /** @returns true if nobody watches any more, which ends the loop */
  leave(stream: PassThrough): boolean {
    this.#streams.delete(stream);
    this.#members.delete(stream);
    if (this.#members.size > 0) return false;
    clearInterval(this.#timer);
    clearTimeout(this.#soon);
    this.#notices?.close();
    return true;
  }

  #look(): Promise<void> {
    this.#looking ??= this.#lookNow().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #lookNow(): Promise<void> {
    try {
      const text = (await this.#newMetrics()) + (await this.#newFacts()) + (await this.#newLines());
      const idle = performance.now() - this.#wroteAt > KEEP_OPEN_MS;
      if (text !== '' || idle) this.#send(text === '' ? ': still here\n\n' : text);
    } catch (error) {
      for (const stream of this.#streams) stream.destroy(error as Error);
    }
  }

  #send(text: string): void {
    this.#wroteAt = performance.now();
    // One copy of what is sent to many pages.
    const bytes = Buffer.from(text);
    for (const stream of this.#streams) {
      if (stream.writableLength > MAX_WAITING_BYTES) stream.destroy();
      else stream.write(bytes);
    }
  }

  async #newFacts(): Promise<string> {
    // Not found again, it would be looked for among all runs.
    if (this.#row === GONE && !(await this.#isBack())) return '';
    const found = await this.#reader.find(this.#run.id);
    if (!found) {
      [this.#row, this.#files] = [GONE, ''];
      return GONE;
    }
    const row = event('row', await this.#reader.row(found));
    const files = event('files', await this.#reader.files(this.#run.id));
    const text = (row === this.#row ? '' : row) + (files === this.#files ? '' : files);
    this.#row = row;
    this.#files = files;
    return text;
  }

  async #newLines(): Promise<string> {
    const news = await this.#log.refresh();
    return news ? event('log', news) : '';
  }

  async #isBack(): Promise<boolean> {
    await using file = await openRunFile(this.#run, RUN_FILES.status);
    return file !== undefined;
  }

  /** Metrics written since the last call, for all streams. */
  async #newMetrics(): Promise<string> {
    const before = this.#inode;
    const { text, offset, inode } = await this.#read(this.#offset!);
    this.#offset = offset;
    this.#inode = inode;
    if (before === 0 || inode === before) return text;
    this.#offset = (await this.#reader.table(this.#run)).offset;
    return event('replaced', { offset: this.#offset });
  }

  /** @param upTo rows that end after this byte are left out */
  async #read(from: number, upTo = Number.POSITIVE_INFINITY) {
    await using file = await openRunFile(this.#run, RUN_FILES.metrics);
    if (!file) return { text: '', offset: from, inode: this.#inode };
    const { size, ino: inode } = file.stats;
    if (size < from || size - from > MAX_BACKLOG_BYTES) {
      const { offset } = await this.#reader.table(this.#run);
      // All of it may be one row that is half written.
      const isNew = offset !== from || inode !== this.#inode;
      return { text: isNew ? event('replaced', { offset }) : '', offset, inode };
    }
    const rows: object[] = [];
    const end = await readLines(file.handle, from, MAX_ROW_BYTES, line => {
      const row = line.end <= upTo ? objectOn(line) : undefined;
      if (row) rows.push(row);
    });
    const offset = Math.min(end, upTo);
    return { text: rows.length === 0 ? '' : event('metrics', { rows, offset }), offset, inode };
  }
}

/** Notices of changes in a folder; undefined where the system has none left or the folder is gone. */
const noticesOf = (folder: string, notice: () => void): FSWatcher | undefined =>
  attempted(() => watch(folder, notice).on('error', () => undefined));

/** The open streams. */
export class LiveRuns {
  readonly #reader: RunReader;
  readonly #watched = new Map<string, WatchedRun>();
  readonly #streams = new Set<PassThrough>();

  constructor(reader: RunReader) {
    this.#reader = reader;
  }

  /**
   * Starts the event stream of a run; undefined when too many pages watch.
   * @param offset first byte of the metrics that the page lacks
   */
  open(run: FoundRun, offset: number): PassThrough | undefined {
    if (this.#streams.size >= MAX_STREAMS) return undefined;
    const stream = new PassThrough();
    this.#streams.add(stream);
    const watched = this.#watched.get(run.path) ?? new WatchedRun(run, this.#reader);
    this.#watched.set(run.path, watched);
    stream.once('close', () => {
      this.#streams.delete(stream);
      if (watched.leave(stream)) this.#watched.delete(run.path);
    });
    watched.join(stream, offset).catch(error => stream.destroy(error as Error));
    return stream;
  }

  close(): void {
    for (const stream of this.#streams) stream.end();
  }
}
