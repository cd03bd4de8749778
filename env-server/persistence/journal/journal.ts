import { Problem } from '../../problems.ts';
import type { PersistenceHealth } from '../persistence-health.ts';
import { RetryTimer } from '../retry-timer.ts';
import { STORAGE_RETRY_SECONDS, storageFaultOf } from '../storage-problem.ts';
import { FrameBuffer } from './frames.ts';
import { NO_SESSION, RECORD_KINDS, type RecordBody, type RecordKind } from './records.ts';
import { type SegmentSettings, SegmentWriter } from './segment-writer.ts';
import { dropSegments, FILE_SYSTEM, inheritedSegments, type JournalFiles, type Segment } from './segments.ts';

/** Share of the permitted bytes on disk from which on a checkpoint is asked for. */
const PRESSURE = 0.5;
/** How long after the last slow write the event loop waits for none. */
const SLOW_MS = 60_000;
/** A write that takes longer is a fault that is told. */
const HANGING_MS = 1000;

export interface JournalSettings extends SegmentSettings {
  /** Records are on the disk, not only with the kernel, before `deliver` delivers. */
  readonly synced: boolean;
  /** A segment that has reached this size is followed by another. */
  readonly segmentBytes: number;
  /** Most bytes of this process on disk; more are refused by `requireRoom`. */
  readonly maxBytes: number;
  /** Most bytes that wait in memory while the disk takes none; more are refused by `requireRoom`. */
  readonly maxWaitingBytes: number;
  /** After a write that took longer, the event loop waits for none for a time. */
  readonly slowWriteMs: number;
}

export interface JournalParts {
  readonly health: PersistenceHealth;
  /** Asks for a checkpoint, which makes room: `rotate`, write every changed session, `release`. */
  readonly onPressure: () => void;
  readonly files?: JournalFiles;
}

type Reply = () => void;

/** What is being written, or is written but not yet known to be on the disk. */
interface PendingTurn {
  readonly frames: Buffer;
  readonly replies: Reply[];
}

/**
 * Appends what sessions do to files, so that it survives the end of the process.
 *
 * Records that are added in one turn of the event loop go out in one write when the turn's input has been handled, and
 * replies wait for it (`deliver`): what was acknowledged is with the kernel, which keeps it when the process dies. With
 * `synced` they wait for an fsync that all turns share which came meanwhile; then it survives the machine, too.
 *
 * A write is a copy to the kernel, so the event loop waits for it: that takes microseconds. When one has taken long, the
 * disk is slow, and for a time the event loop goes on while records are written: replies to what was recorded still wait
 * for their records, replies that only read do not.
 *
 * While the disk takes no writes, records wait in memory and are tried again with a growing delay. Without `synced` their
 * replies leave meanwhile, and `PersistenceHealth` tells; with it they wait, too, and nothing new is begun. Nothing is
 * ever dropped: where too much waits, or lies on disk uncovered by checkpoints, `requireRoom` refuses what would add more.
 */
export class Journal {
  readonly #settings: JournalSettings;
  readonly #parts: JournalParts;
  readonly #segments: SegmentWriter;
  readonly #retry = new RetryTimer(() => this.#try());
  /** Records that are not written yet. */
  readonly #buffer = new FrameBuffer();
  /** Bytes of the buffer that are in the segment already, after a write that stopped half way. */
  #written = 0;
  #inherited: readonly Segment[];
  #inheritedBytes: number;
  /** This turn's records are going to be written. */
  #planned = false;
  #closed = false;
  /** Replies that wait for the next write. */
  #held: Reply[] = [];
  #unsynced: PendingTurn[] = [];
  /** The sync that is under way. */
  #sync: object | undefined;
  /** What is being written while the event loop goes on. */
  #late: PendingTurn | undefined;
  /** Until then the disk counts as slow, in milliseconds of `performance.now`. */
  #slowUntil = 0;

  /** @throws Error of the system where the folder cannot be made or read */
  constructor(settings: JournalSettings, parts: JournalParts) {
    this.#settings = settings;
    this.#parts = parts;
    this.#segments = new SegmentWriter(settings, parts.files ?? FILE_SYSTEM);
    this.#inherited = inheritedSegments(settings.folder, settings.writer);
    this.#inheritedBytes = this.#inherited.reduce((sum, { bytes }) => sum + bytes, 0);
    parts.health.journalBytes = () => this.bytesOnDisk;
  }

  /** Segments that were there before: of earlier runs, or of this process before it was started again. */
  get inherited(): readonly Segment[] {
    return this.#inherited;
  }

  /** Bytes of its own segments and of those that it has inherited. */
  get bytesOnDisk(): number {
    return this.#segments.bytes + this.#inheritedBytes;
  }

  /** Bytes in memory that are not written yet. */
  get bytesWaiting(): number {
    return this.#buffer.length - this.#written + (this.#late?.frames.length ?? 0);
  }

  /** The event loop waits for no write: replies that acknowledge nothing leave before what is recorded. */
  get isSlow(): boolean {
    return this.#late !== undefined || (this.#slowUntil > 0 && performance.now() < this.#slowUntil);
  }

  /**
   * Call it before an operation that will be recorded: afterwards it is too late to refuse it.
   * @throws Problem `storage_full`, `storage_failed`
   */
  requireRoom(): void {
    const { maxBytes, maxWaitingBytes, synced } = this.#settings;
    const { failing } = this.#parts.health.parts.journal;
    const waiting = this.bytesWaiting;
    if (failing ? synced || waiting >= maxWaitingBytes : this.#late && waiting >= maxWaitingBytes) {
      const limit = synced
        ? ''
        : `; ${waiting} bytes of earlier operations wait to be written, the most that may`;
      throw refusal(failing?.code ?? 'storage_failed', `${failing?.reason ?? 'the disk is slow'}${limit}`);
    }
    const total = this.bytesOnDisk + waiting;
    if (total >= maxBytes) {
      this.#parts.onPressure();
      throw refusal(
        'storage_full',
        `the journal has ${total} bytes, the most it may have is ${maxBytes}; the next checkpoint makes room`,
      );
    }
  }

  /**
   * Adds a record; it is written at the end of this turn of the event loop.
   * @param n number of the record in its session
   * @throws RecordTooLarge with nothing added
   */
  append<K extends RecordKind>(kind: K, sessionId: string, n: number, body: RecordBody<K>): void {
    this.#buffer.add(LETTERS[kind], sessionId, n, body as never);
    if (this.#planned) return;
    this.#planned = true;
    setImmediate(this.#endTurn);
  }

  /**
   * Delivers a reply when everything that was recorded before it is kept as the settings say; at once where it is.
   * @param reads it acknowledges nothing: on a slow disk it waits for nobody, unless records are to be synced
   */
  deliver(reply: Reply, reads = false): void {
    if (reads && this.isSlow && !this.#settings.synced) {
      reply();
      return;
    }
    const unwritten = (this.#settings.synced || this.#late) && this.#buffer.length > 0;
    if (this.#planned || this.#held.length > 0 || unwritten) this.#held.push(reply);
    else if (this.#late) this.#late.replies.push(reply);
    else if (this.#unsynced.length > 0) this.#unsynced[this.#unsynced.length - 1].replies.push(reply);
    else reply();
  }

  /**
   * Begins a new segment with the next record.
   * @returns what `release` is told when a checkpoint covers everything that was recorded until now
   */
  rotate(): number {
    if (this.isSlow) {
      this.#reclaim();
      const mark = this.#segments.next;
      if (!this.#retry.pending) this.#attempt();
      return mark;
    }
    this.flush();
    this.#leaveSegment();
    return this.#segments.next;
  }

  /**
   * Deletes the segments before a mark of `rotate`.
   * @throws Error of the system where one cannot be deleted; the next call tries again
   */
  release(mark: number): void {
    this.#segments.release(mark);
  }

  /**
   * A checkpoint covers what this process has replayed: it needs the segments no more that it has inherited.
   * @throws Error of the system where they cannot be deleted
   */
  releaseInherited(): void {
    const { folder, writer } = this.#settings;
    dropSegments(folder, this.#inherited, writer);
    this.#inherited = [];
    this.#inheritedBytes = 0;
  }

  /**
   * Writes what waits now, and syncs it where records are to be synced.
   * @returns bytes that could not be written
   */
  flush(): number {
    if (!this.#closed) {
      this.#retry.stop();
      if (this.#late) this.#reclaim();
      this.#slowUntil = 0;
      this.#attempt();
      this.#syncNow();
    }
    return this.bytesWaiting;
  }

  /**
   * Writes what waits and closes the segment; what is added later is not written. The files stay until
   * `release`, or for the next start.
   * @returns bytes that could not be written
   */
  close(): number {
    const lost = this.flush();
    this.#closed = true;
    this.#retry.stop();
    this.#leaveSegment();
    return lost;
  }

  readonly #endTurn = (): void => {
    this.#planned = false;
    if (!this.#retry.pending && !this.#closed) this.#attempt();
    else if (!this.#settings.synced) this.#deliverHeld();
    this.#parts.health.waiting('journal', this.bytesWaiting);
  };

  /** After a fault only a write tells whether the disk takes writes again. */
  #try(): void {
    if (this.#buffer.length === 0) this.#buffer.add(LETTERS.acknowledge, NO_SESSION, 0, undefined);
    this.#attempt();
  }

  #attempt(): void {
    // Its end is followed by the next attempt.
    if (this.#late) return;
    if (this.#buffer.length > 0) {
      try {
        this.#openSegment();
        if (this.isSlow) {
          this.#writeLater();
          return;
        }
        this.#write();
      } catch (error) {
        this.#fail(error);
        return;
      }
      this.#retry.succeeded();
      if (this.#settings.synced) {
        this.#awaitSync();
        return;
      }
      this.#segments.note(false);
      this.#empty();
      this.#parts.health.succeeded('journal');
    }
    if (this.#unsynced.length === 0) this.#deliverHeld();
  }

  #openSegment(): void {
    const { segmentBytes, maxBytes } = this.#settings;
    // A turn is never split, so that what refers to a record just before it finds it in the same segment.
    if (this.#written === 0 && this.#segments.segmentBytes >= segmentBytes) this.#leaveSegment();
    if (!this.#segments.isOpen) {
      this.#buffer.prepend([this.#segments.begin()]);
      if (this.bytesOnDisk > PRESSURE * maxBytes) this.#parts.onPressure();
    }
  }

  #write(): void {
    const { bytes } = this.#buffer;
    const begun = performance.now();
    while (this.#written < bytes.length) this.#written += this.#segments.write(bytes, this.#written);
    this.#measure(begun);
  }

  #measure(begun: number): void {
    const now = performance.now();
    if (now - begun > this.#settings.slowWriteMs) this.#slowUntil = now + SLOW_MS;
  }

  #writeLater(): void {
    const late = { frames: Buffer.from(this.#buffer.bytes), replies: this.#held };
    const from = this.#written;
    this.#held = [];
    this.#empty();
    this.#late = late;
    const begun = performance.now();
    const hanging = setTimeout(() => {
      const error = Object.assign(new Error('a write has not returned'), { code: 'ETIMEDOUT' });
      if (this.#late === late) this.#parts.health.failed('journal', error);
    }, HANGING_MS).unref();
    this.#segments.writeLater(late.frames, from, (error, end) => {
      clearTimeout(hanging);
      this.#measure(begun);
      // It is written again meanwhile.
      if (this.#late !== late) return;
      this.#late = undefined;
      if (error) {
        this.#takeBack([late]);
        this.#written = end;
        this.#fail(error);
      } else this.#endLate(late);
    });
  }

  #endLate(late: PendingTurn): void {
    this.#retry.succeeded();
    if (this.#settings.synced) {
      this.#unsynced.push(late);
      if (!this.#sync) this.#beginSync();
    } else {
      this.#segments.note(false);
      this.#parts.health.succeeded('journal');
      deliverAll(late.replies);
    }
    this.#parts.health.waiting('journal', this.bytesWaiting);
    if (!this.#planned) this.#attempt();
  }

  /** Replies and records of turns come before all others again. */
  #takeBack(turns: readonly PendingTurn[]): void {
    this.#buffer.prepend(turns.map(({ frames }) => frames));
    this.#held = [...turns.flatMap(({ replies }) => replies), ...this.#held];
  }

  /** What is not known to be kept is written again, to another segment: twice is as good as once. */
  #reclaim(): void {
    const turns = this.#late ? [...this.#unsynced, this.#late] : this.#unsynced;
    this.#unsynced = [];
    this.#late = undefined;
    this.#takeBack(turns);
    this.#abandonSegment();
  }

  #empty(): void {
    this.#buffer.clear();
    this.#written = 0;
    this.#parts.health.waiting('journal', 0);
  }

  /** Where the disk is full the segment goes on when there is room; after any other fault another one is begun. */
  #fail(error: unknown): void {
    const { synced } = this.#settings;
    if (!synced) this.#segments.note(true);
    if (storageFaultOf(error)?.code !== 'storage_full') this.#abandonSegment();
    this.#degrade(error);
    if (!synced) this.#deliverHeld();
  }

  #degrade(error: unknown): void {
    const { health } = this.#parts;
    health.failed('journal', error);
    health.waiting('journal', this.bytesWaiting);
    if (!this.#closed) this.#retry.failed();
  }

  /** What is written goes to the disk first where that was promised. */
  #leaveSegment(): void {
    this.#syncNow();
    this.#abandonSegment();
  }

  /** What is written only in part is written whole to the next one. */
  #abandonSegment(): void {
    this.#written = 0;
    this.#sync = undefined;
    try {
      this.#segments.leave();
    } catch (error) {
      // Network file systems may say here that they did not take what was written.
      this.#degrade(error);
    }
  }

  #awaitSync(): void {
    this.#unsynced.push({ frames: Buffer.from(this.#buffer.bytes), replies: this.#held });
    this.#held = [];
    this.#empty();
    if (!this.#sync) this.#beginSync();
  }

  /** Turns that are written while a sync is under way have the next one in common. */
  #beginSync(): void {
    const count = this.#unsynced.length;
    const sync = {};
    this.#sync = sync;
    this.#segments.sync(error => {
      // Its segment was left meanwhile, which saw to it.
      if (this.#sync !== sync) return;
      this.#sync = undefined;
      if (error) {
        this.#failSync(error);
        return;
      }
      this.#synced(count);
      if (this.#unsynced.length > 0) this.#beginSync();
    });
  }

  #syncNow(): void {
    if (this.#unsynced.length === 0) return;
    this.#sync = undefined;
    try {
      this.#segments.syncNow();
    } catch (error) {
      this.#failSync(error);
      return;
    }
    this.#synced(this.#unsynced.length);
  }

  #synced(count: number): void {
    this.#parts.health.succeeded('journal');
    for (const { replies } of this.#unsynced.splice(0, count)) deliverAll(replies);
  }

  /** After a failed sync the kernel may have dropped what was written, and says so only once: all of it is written again. */
  #failSync(error: unknown): void {
    this.#reclaim();
    this.#degrade(error);
  }

  #deliverHeld(): void {
    if (this.#held.length === 0) return;
    const held = this.#held;
    this.#held = [];
    deliverAll(held);
  }
}

const LETTERS = Object.fromEntries(
  Object.entries(RECORD_KINDS).map(([kind, letter]) => [kind, letter.charCodeAt(0)]),
) as { readonly [kind in RecordKind]: number };

function refusal(code: 'storage_full' | 'storage_failed', why: string): Problem {
  return new Problem(code, `nothing was done: ${why}`, { retryAfterSeconds: STORAGE_RETRY_SECONDS });
}

/** One that fails keeps no other from being delivered. */
function deliverAll(replies: readonly Reply[]): void {
  for (const reply of replies) {
    try {
      reply();
    } catch (error) {
      setImmediate(() => {
        throw error;
      });
    }
  }
}
