import type { SessionCard } from '../../player/wire.ts';
import type { Client } from './client.ts';

/** Filter of the sessions to show. */
export interface FeedFilter {
  readonly env_id?: string;
  readonly group_id?: string;
  readonly client?: string;
  /** Newest open sessions to skip. */
  readonly offset?: number;
}

interface FeedFrame {
  readonly ok: boolean;
  readonly result?: {
    readonly sessions: readonly SessionCard[];
    readonly order?: readonly string[];
    readonly open?: number;
  };
  readonly error?: { readonly detail: string };
}

const RETRY_MS = 2000;

/**
 * The current sessions of this server, pushed over a WebSocket. An ended session stays until the server says that it is no
 * longer shown. It reconnects when the connection breaks.
 */
export class SessionFeed {
  readonly #client: Client;
  readonly #onchange: (cards: readonly SessionCard[], open: number) => void;
  readonly #onproblem: (detail: string) => void;
  #filter: FeedFilter = {};
  #socket: WebSocket | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #cards = new Map<string, SessionCard>();
  #order: readonly string[] = [];
  #open = 0;
  /** Counts requests; answers to earlier ones are ignored. */
  #asked = 0;

  constructor(
    client: Client,
    onchange: (cards: readonly SessionCard[], open: number) => void,
    onproblem: (detail: string) => void,
  ) {
    this.#client = client;
    this.#onchange = onchange;
    this.#onproblem = onproblem;
  }

  start(filter: FeedFilter = {}): void {
    this.stop();
    this.#filter = filter;
    const socket = this.#client.socket();
    this.#socket = socket;
    socket.addEventListener('open', () => this.#ask());
    socket.addEventListener('message', ({ data }) => this.#take(JSON.parse(data)));
    socket.addEventListener('close', () => {
      if (this.#socket !== socket) return;
      this.#timer = setTimeout(() => this.start(this.#filter), RETRY_MS);
    });
  }

  /** Changes the requested sessions. */
  set filter(filter: FeedFilter) {
    this.#filter = filter;
    if (this.#socket?.readyState === WebSocket.OPEN) this.#ask();
  }

  stop(): void {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.close();
  }

  #ask(): void {
    this.#cards = new Map();
    this.#order = [];
    const filter = Object.fromEntries(Object.entries(this.#filter).filter(([, value]) => value));
    this.#socket?.send(JSON.stringify({ id: ++this.#asked, op: 'watch', ...filter }));
  }

  #take(frame: FeedFrame & { readonly id: number }): void {
    if (frame.id !== this.#asked) return;
    if (!frame.result) {
      this.#onproblem(frame.error?.detail ?? 'The server refused to show its sessions.');
      return;
    }
    for (const card of frame.result.sessions) this.#cards.set(card.session_id, card);
    if (frame.result.order) {
      this.#order = frame.result.order;
      this.#open = frame.result.open ?? 0;
      const present = new Set(this.#order);
      for (const id of this.#cards.keys()) if (!present.has(id)) this.#cards.delete(id);
    }
    this.#onchange(
      this.#order.flatMap(id => this.#cards.get(id) ?? []),
      this.#open,
    );
  }
}
