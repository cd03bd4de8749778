import { Problem } from '../../problems.ts';
import type { PersistenceHealth } from '../persistence-health.ts';
import { RetryTimer } from '../retry-timer.ts';
import { STORAGE_RETRY_SECONDS, storageFaultOf } from '../storage-problem.ts';
import { FrameBuffer } from './frames.ts';
import { LateWrites } from './late-writes.ts';
import { deliverAll, type PendingTurns, type Reply } from './pending-turns.ts';
import { NO_SESSION, RECORD_KINDS, type RecordBody, type RecordKind } from './records.ts';
import { type SegmentSettings, SegmentWriter } from './segment-writer.ts';
import { dropSegments, FILE_SYSTEM, inheritedSegments, type JournalFiles, type Segment } from './segments.ts';
import { UnsyncedTurns } from './unsynced-turns.ts';

/** Share of the permitted bytes on disk from which on a checkpoint is asked for. */
const PRESSURE = 0.5;

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

/**
 * Appends what sessions do to files, so that it survives the end of the process.
 *
 * Records that are added in one turn of the event loop go out in one write when the turn's input has been handled, and
 * replies wait for it (`deliver`): what was acknowledged is with the kernel, which keeps it when the process dies. With
 * `synced` they wait for an fsync that all turns share which came meanwhile; then it survives the machine, too.
 *
 * A write is a copy to the kernel, so the event loop waits for it: that takes microseconds. When one has taken long, the
 * disk is slow, and for a time the event loop goes on while records are written: replies to what was recorded still wait
 * for their records, replies that only read do not. So everybody waits for the first slow write of a spell, and for none
 * after it. To write without waiting from the start would spare that, at a trip to a thread for every turn: a client
 * alone would get half as many steps (docs/reference/limits.md).
 *
 * While the disk takes no writes, records wait in memory and are tried again with a growing delay. Without `synced` their
 * replies leave meanwhile, and `PersistenceHealth` reports it; with it they wait, too, and nothing new is begun. Nothing is
 * ever dropped: where too much waits, or lies on disk uncovered by checkpoints, `requireRoom` refuses what would add more.
 */
export class Journal {
  readonly #settings: JournalSettings;
  readonly #parts: JournalParts;
  readonly #segments: SegmentWriter;
  readonly #late: LateWrites;
  readonly #unsynced: UnsyncedTurns;
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

  /** @throws Error of the system where the folder cannot be made or read */
  constructor(settings: JournalSettings, parts: JournalParts) {
    this.#settings = settings;
    this.#parts = parts;
    const { health } = parts;
    const segments = new SegmentWriter(settings, parts.files ?? FILE_SYSTEM);
    this.#segments = segments;
    this.#late = new LateWrites({
      segments,
      slowWriteMs: settings.slowWriteMs,
      onHanging: error => health.failed('journal', error),
    });
    this.#unsynced = new UnsyncedTurns({
      segments,
      onSynced: () => health.succeeded('journal'),
      onFailed: error => {
        this.#abandonSegment();
        this.#degrade(error);
      },
    });
    this.#inherited = inheritedSegments(settings.folder, settings.writer);
    this.#inheritedBytes = this.#inherited.reduce((sum, { bytes }) => sum + bytes, 0);
    health.journalBytes = () => this.bytesOnDisk;
  }

  /** Segments that were there before: of earlier runs, or of this process before it was started again. */
  get inherited(): readonly Segment[] {
    return this.#inherited;
  }

  /** Bytes of its segments and of those that it has inherited. */
  get bytesOnDisk(): number {
    return this.#segments.bytes + this.#inheritedBytes;
  }

  /** Bytes in memory that are not written yet. */
  get bytesWaiting(): number {
    return this.#buffer.length - this.#written + this.#late.bytes;
  }

  /** The event loop waits for no write: replies that acknowledge nothing leave before what is recorded. */
  get isSlow(): boolean {
    return this.#late.isSlow;
  }

  /**
   * Call it before an operation that will be recorded: afterwards it is too late to refuse it.
   * @throws Problem `storage_full`, `storage_failed`
   */
  requireRoom(): void {
    const { maxBytes, maxWaitingBytes, synced } = this.#settings;
    const { failing } = this.#parts.health.parts.journal;
    const waiting = this.bytesWaiting;
    const isFull = waiting >= maxWaitingBytes;
    if (failing ? synced || isFull : this.#late.isWriting && isFull) {
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
    const unwritten = (this.#settings.synced || this.#late.isWriting) && this.#buffer.length > 0;
    if (this.#planned || this.#held.length > 0 || unwritten) this.#held.push(reply);
    else if (this.#late.isWriting) this.#late.deliver(reply);
    else if (!this.#unsynced.isEmpty) this.#unsynced.deliver(reply);
    else reply();
  }

  /**
   * Begins a new segment with the next record.
   * @returns argument for `release` when a checkpoint covers everything that was recorded until now
   */
  rotate(): number {
    if (this.isSlow) {
      this.#abandonSegment();
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
      if (this.#late.isWriting) this.#abandonSegment();
      this.#late.forget();
      this.#attempt();
      this.#unsynced.syncNow();
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

  /** After a fault only a write shows whether the disk takes writes again. */
  #try(): void {
    if (this.#buffer.length === 0) this.#buffer.add(LETTERS.acknowledge, NO_SESSION, 0, undefined);
    this.#attempt();
  }

  #attempt(): void {
    // Its end is followed by the next attempt.
    if (this.#late.isWriting) return;
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
        this.#unsynced.add(this.#takeTurns());
        return;
      }
      this.#segments.note(false);
      this.#empty();
      this.#parts.health.succeeded('journal');
    }
    if (this.#unsynced.isEmpty) this.#deliverHeld();
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
    this.#late.measure(begun);
  }

  #writeLater(): void {
    const from = this.#written;
    const turns = this.#takeTurns();
    this.#late.begin(turns, from, (error, end) => {
      if (error) {
        this.#takeBack([turns]);
        this.#written = end;
        this.#fail(error);
      } else this.#endLate(turns);
    });
  }

  #endLate(turns: PendingTurns): void {
    this.#retry.succeeded();
    if (this.#settings.synced) this.#unsynced.add(turns);
    else {
      this.#segments.note(false);
      this.#parts.health.succeeded('journal');
      deliverAll(turns.replies);
    }
    this.#parts.health.waiting('journal', this.bytesWaiting);
    if (!this.#planned) this.#attempt();
  }

  /** Takes the turns that wait; they are being written, or written, and wait for the outcome. */
  #takeTurns(): PendingTurns {
    const turns = { frames: Buffer.from(this.#buffer.bytes), replies: this.#held };
    this.#held = [];
    this.#empty();
    return turns;
  }

  /** Replies and records of turns come before all others again. */
  #takeBack(turns: readonly PendingTurns[]): void {
    if (turns.length === 0) return;
    this.#buffer.prepend(turns.map(({ frames }) => frames));
    this.#held = [...turns.flatMap(({ replies }) => replies), ...this.#held];
  }

  #empty(): void {
    this.#buffer.clear();
    this.#written = 0;
    this.#parts.health.waiting('journal', 0);
  }

  /** Continues the segment when there is room, if the disk is full; begins another one after any other fault. */
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

  /** Syncs what is written first where that was promised. */
  #leaveSegment(): void {
    this.#unsynced.syncNow();
    this.#abandonSegment();
  }

  /** Writes what may not be kept again, whole and to another segment: records may be kept twice. */
  #abandonSegment(): void {
    this.#takeBack([...this.#unsynced.takeBack(), ...this.#late.takeBack()]);
    this.#written = 0;
    try {
      this.#segments.leave();
    } catch (error) {
      // Network file systems may say here that they did not take what was written.
      this.#degrade(error);
    }
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
