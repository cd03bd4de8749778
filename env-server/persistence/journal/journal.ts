import type { Json } from '../../../shared/json.ts';
import { Problem } from '../../problems.ts';
import {
  type PersistenceHealth,
  RetryTimer,
  STORAGE_RETRY_SECONDS,
  storageFaultOf,
} from '../persistence-health.ts';
import type { JournalFiles } from './journal-files.ts';
import type { Turn } from './turn-file.ts';

/** Share of the permitted bytes on disk at which a checkpoint is requested. */
const PRESSURE = 0.5;
/** Largest record, in bytes. */
export const MAX_RECORD_BYTES = 64 * 1024 * 1024;
/** Bytes after which the records of a turn begin another row: a text that is too long could not be joined. */
const MAX_ROW_LENGTH = 32 * 1024 * 1024;
/** After a slow write the event loop waits for none for so many times as long: a hundredth of the time at most. */
const SLOW_SPELL = 100;
const MAX_SLOW_SPELL_MS = 60_000;
/** Milliseconds after which a write counts as a fault and is reported. */
const HANGING_MS = 1000;
const BEYOND_ASCII = /[\u0080-\uffff]/;

type Reply = () => void;

export interface JournalSettings {
  /** True if records must be on the disk, not only with the kernel, before replies are delivered. */
  readonly synced: boolean;
  /** Most bytes of records on disk; beyond it `requireRoom` rejects operations. */
  readonly maxBytes: number;
  /** Most bytes that wait in memory while the disk accepts none; beyond it `requireRoom` rejects operations. */
  readonly maxWaitingBytes: number;
  /** After a write that took longer, the event loop waits for none for a while. */
  readonly slowWriteMs: number;
}

export interface JournalParts {
  readonly files: JournalFiles;
  readonly health: PersistenceHealth;
  /** Requests a checkpoint, which makes room: `rotate` the files, write every changed session, `release`. */
  readonly onPressure: () => void;
}

/** Turns that a thread writes, with the replies that wait for them. */
interface LateTurns {
  readonly turns: readonly Turn[];
  readonly replies: Reply[];
}

/**
 * Appends what sessions do to SQLite databases, so that it survives the end of the process.
 *
 * Records that are added in one turn of the event loop become one row when the turn's input has been handled, and
 * replies wait for it (`deliver`): what was acknowledged is with the kernel, which keeps it when the process dies. With
 * `synced` a thread writes the rows, and each transaction is on the disk before its replies leave; turns that came
 * meanwhile share the next one. Then it survives the machine, too.
 *
 * A write is a copy to the kernel, so the event loop waits for it: that takes microseconds. When one has taken long, the
 * disk is slow, and for a time the thread writes: replies to what was recorded still wait for their records, replies that
 * only read do not. So everybody waits for the first slow write of a spell, and for none after it. A spell is as long as
 * the write deserves: on a busy machine a write may have been quick and its process paused. To write without waiting from
 * the start would spare the first wait, at a trip to a thread for every turn (docs/reference/limits.md).
 *
 * While the disk takes no writes, records wait in memory and are tried again with a growing delay. Without `synced` their
 * replies leave meanwhile, and `PersistenceHealth` reports it; with it they wait, too, and nothing new is begun. Nothing is
 * ever dropped: where too much waits, or lies on disk uncovered by checkpoints, `requireRoom` refuses what would add more.
 */
export class Journal {
  readonly #settings: JournalSettings;
  readonly #parts: JournalParts;
  readonly #files: JournalFiles;
  readonly #retry = new RetryTimer(() => this.#attempt());
  /** Records of the current turn of the event loop, as in {@link Turn}. */
  #records = '';
  #count = 0;
  /** Earlier turns not yet written. */
  #turns: Turn[] = [];
  /** Bytes of these, and of those that the thread is writing. */
  #earlierBytes = 0;
  /** Turns that the thread is writing. */
  #late: LateTurns | undefined;
  /** Time until which the disk counts as slow, in milliseconds of `performance.now`. */
  #slowUntil = 0;
  /** True once the write of this turn's records is scheduled. */
  #planned = false;
  #closed = false;
  /** Replies that wait for the next write. */
  #held: Reply[] = [];

  constructor(settings: JournalSettings, parts: JournalParts) {
    this.#settings = settings;
    this.#parts = parts;
    this.#files = parts.files;
    parts.health.journalBytes = () => this.bytesOnDisk;
  }

  /** Bytes of its records on disk, including the files of earlier processes. */
  get bytesOnDisk(): number {
    return this.#files.bytes;
  }

  /** Bytes in memory that are not yet written. */
  get bytesWaiting(): number {
    return this.#earlierBytes + this.#records.length;
  }

  /** True while the event loop waits for no write: replies that acknowledge nothing leave before recorded ones. */
  get isSlow(): boolean {
    if (this.#settings.synced) return false;
    return this.#late !== undefined || (this.#slowUntil > 0 && performance.now() < this.#slowUntil);
  }

  /** The reply that has waited longest for the disk. */
  get oldestReply(): object | undefined {
    return this.#late?.replies[0] ?? this.#held[0];
  }

  /**
   * Call it before an operation that will be recorded; later is too late to reject it.
   * @throws Problem `storage_full`, `storage_failed`
   */
  requireRoom(): void {
    const { maxBytes, maxWaitingBytes, synced } = this.#settings;
    const { failing } = this.#parts.health.parts.journal;
    const waiting = this.bytesWaiting;
    const isFull = waiting >= maxWaitingBytes;
    if (failing ? synced || isFull : this.#late && isFull) {
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
   * @param letter of its kind
   * @param sessionId ASCII without a space
   * @param n number of the record in its session
   * @param text see {@link recordText}
   */
  append(letter: string, sessionId: string, n: number, text: string): void {
    const bytes = BEYOND_ASCII.test(text) ? Buffer.from(text).toString('latin1') : text;
    if (this.#records.length + bytes.length > MAX_ROW_LENGTH) this.#endRow();
    this.#records += bytes === '' ? `${letter}${sessionId} ${n}\n` : `${letter}${sessionId} ${n} ${bytes}\n`;
    this.#count++;
    if (this.#planned) return;
    this.#planned = true;
    setImmediate(this.#endTurn);
  }

  /**
   * Delivers a reply once everything recorded before it is stored as the settings require.
   * @param reads the reply acknowledges nothing: on a slow disk it does not wait, unless records are to be synced
   */
  deliver(reply: Reply, reads = false): void {
    if (reads && this.isSlow) {
      reply();
      return;
    }
    const unwritten = (this.#settings.synced || this.#late) && (this.#turns.length > 0 || this.#count > 0);
    if (this.#planned || this.#held.length > 0 || unwritten) this.#held.push(reply);
    else if (this.#late) this.#late.replies.push(reply);
    else reply();
  }

  /**
   * Writes everything now, blocking the event loop; a hanging write in the thread is repeated here.
   * @returns bytes that could not be written
   */
  flush(): number {
    if (!this.#closed) {
      this.#retry.stop();
      if (this.#late) this.#takeBack(this.#late);
      this.#endRow();
      if (this.#turns.length > 0) this.#writeNow();
    }
    return this.bytesWaiting;
  }

  /**
   * Writes everything and closes the file; later records are not written. The files stay until they are released, or for the
   * next start.
   * @returns bytes that could not be written
   */
  close(): number {
    const lost = this.flush();
    this.#closed = true;
    this.#retry.stop();
    this.#files.close();
    return lost;
  }

  readonly #endTurn = (): void => {
    this.#planned = false;
    if (!this.#retry.pending && !this.#closed) this.#attempt();
    else if (!this.#settings.synced) this.#deliverHeld();
    if (!this.#isEmpty) this.#reportWaiting();
  };

  get #isEmpty(): boolean {
    return this.#turns.length === 0 && this.#count === 0 && !this.#late;
  }

  #endRow(): void {
    if (this.#count === 0) return;
    this.#turns.push({ records: this.#records, count: this.#count });
    this.#earlierBytes += this.#records.length;
    this.#records = '';
    this.#count = 0;
  }

  #attempt(): void {
    // The next attempt follows its end.
    if (this.#late) return;
    this.#endRow();
    if (this.#turns.length === 0) this.#deliverHeld();
    else if (this.#settings.synced || this.isSlow) this.#writeLater();
    else this.#writeNow();
  }

  #writeNow(): void {
    try {
      this.#measure(this.#files.write(this.#turns));
    } catch (error) {
      this.#fail(error);
      return;
    }
    this.#turns = [];
    this.#earlierBytes = 0;
    this.#succeed();
    this.#deliverHeld();
  }

  #writeLater(): void {
    const late: LateTurns = { turns: this.#turns, replies: this.#held };
    const bytes = this.#earlierBytes;
    this.#late = late;
    this.#turns = [];
    this.#held = [];
    const hanging = setTimeout(() => {
      const error = Object.assign(new Error('a write has not returned'), { code: 'ETIMEDOUT' });
      if (this.#late !== late) return;
      this.#parts.health.failed('journal', error);
      this.#reportWaiting();
    }, HANGING_MS).unref();
    this.#files.writeLater(late.turns).then(
      ms => {
        clearTimeout(hanging);
        this.#measure(ms);
        if (this.#late !== late) return;
        this.#late = undefined;
        this.#earlierBytes -= bytes;
        this.#succeed();
        deliverAll(late.replies);
        if (!this.#planned) this.#attempt();
      },
      error => {
        clearTimeout(hanging);
        if (this.#late !== late) return;
        this.#takeBack(late);
        this.#fail(error);
      },
    );
  }

  /**
   * Puts turns and replies back in front. They are written to another file, because the thread may still write them:
   * records may be stored twice.
   */
  #takeBack({ turns, replies }: LateTurns): void {
    this.#late = undefined;
    this.#files.leave();
    this.#turns = [...turns, ...this.#turns];
    this.#held = [...replies, ...this.#held];
  }

  #measure(ms: number): void {
    if (ms <= this.#settings.slowWriteMs) return;
    const spell = Math.min(SLOW_SPELL * ms, MAX_SLOW_SPELL_MS);
    this.#slowUntil = Math.max(this.#slowUntil, performance.now() + spell);
  }

  #succeed(): void {
    const { health } = this.#parts;
    this.#retry.succeeded();
    health.succeeded('journal');
    health.waiting('journal', this.#isEmpty ? 0 : this.bytesWaiting);
    if (this.bytesOnDisk > PRESSURE * this.#settings.maxBytes) this.#parts.onPressure();
  }

  /** Continues the file once there is room, if the disk is full; begins another one after any other fault. */
  #fail(error: unknown): void {
    const { synced } = this.#settings;
    if (!synced) this.#files.noteUnwritten();
    if (storageFaultOf(error)?.code !== 'storage_full') this.#files.leave();
    this.#parts.health.failed('journal', error);
    this.#reportWaiting();
    if (!this.#closed) this.#retry.failed();
    if (!synced) this.#deliverHeld();
  }

  #reportWaiting(): void {
    this.#parts.health.waiting('journal', this.bytesWaiting);
  }

  #deliverHeld(): void {
    if (this.#held.length === 0) return;
    const held = this.#held;
    this.#held = [];
    deliverAll(held);
  }
}

/** A failing reply does not prevent the others. */
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

/**
 * The text of a record's body, empty where it has none; undefined where it has more than {@link MAX_RECORD_BYTES}, or
 * more characters than a string.
 */
export function recordText(body: Json | undefined): string | undefined {
  // Most records are steps, and most actions are numbers.
  if (typeof body === 'number' && Number.isFinite(body)) return String(body);
  try {
    const text = body === undefined ? '' : JSON.stringify(body);
    // No character takes more than three bytes.
    const bytes = 3 * text.length > MAX_RECORD_BYTES ? Buffer.byteLength(text) : text.length;
    return bytes <= MAX_RECORD_BYTES ? text : undefined;
  } catch (error) {
    // V8 says "Invalid string length".
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

function refusal(code: 'storage_full' | 'storage_failed', why: string): Problem {
  return new Problem(code, `nothing was done: ${why}`, { retryAfterSeconds: STORAGE_RETRY_SECONDS });
}
