import type { SessionManager } from '../../sessions/manager.ts';
import type { FrameProtocol } from './protocol.ts';

/** Characters or bytes of replies above which they do not wait for more to leave with them. */
const MAX_OUTGOING = 256 * 1024;

/** Destination of the frames of a socket. */
export interface FrameSink {
  readonly isOpen: boolean;
  write(frames: Buffer): void;
}

/** Replies of one socket. Those to the frames of one packet leave in one packet, unless they are many. */
export class OutgoingFrames<T, B, M> {
  readonly #sessions: SessionManager;
  readonly #protocol: FrameProtocol<T, B, M>;
  readonly #sink: FrameSink;
  #messages: M[] = [];
  /** Replies that leave before the others. */
  #first: M[] = [];
  #size = 0;

  constructor(sessions: SessionManager, protocol: FrameProtocol<T, B, M>, sink: FrameSink) {
    this.#sessions = sessions;
    this.#protocol = protocol;
    this.#sink = sink;
  }

  /** @param reads it acknowledges nothing: while the disk is slow it leaves before what waits for its record */
  send(message: M, reads: boolean): void {
    if (reads && this.#sessions.readsGoFirst) this.#first.push(message);
    else this.#messages.push(message);
    this.#size += this.#protocol.sizeOf(message);
    if (this.#size > MAX_OUTGOING) this.#flush();
    else if (this.#messages.length + this.#first.length === 1) process.nextTick(this.#flush);
  }

  readonly #flush = (): void => {
    const [first, messages] = [this.#first, this.#messages];
    this.#size = 0;
    if (first.length > 0) {
      this.#first = [];
      this.#deliver(first, true);
    }
    if (messages.length > 0) {
      this.#messages = [];
      this.#deliver(messages, false);
    }
  };

  /** Frames go to the stream themselves: through `ws` each would be two buffers and a separate write. */
  #deliver(messages: readonly M[], reads: boolean): void {
    this.#sessions.deliver(() => {
      if (this.#sink.isOpen) this.#sink.write(this.#protocol.frames(messages));
    }, reads);
  }
}
