import { closed, Type } from '../../../shared/schema/type.ts';
import type { Services } from '../../operations/operation.ts';
import { EnvId, FrameIdSchema, GroupId } from '../../operations/schemas/fields.ts';
import type { SessionCard } from '../../operations/schemas/session.ts';
import { type CardFilter, type Cards, cardsOf, cardText } from '../../operations/sessions/cards.ts';
import { compileCheck } from '../../operations/validation.ts';
import { Problem } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';

/** Milliseconds between two looks at the sessions; faster changes are merged. */
export const LOOK_MS = 500;
/** Every so many looks all sessions are examined, so that sessions that no longer change are not missed. */
const WHOLE_EVERY = 20;
/** Milliseconds by which each look overlaps the last one. */
const OVERLAP_MS = 200;
const DEFAULT_LIMIT = 60;
const LARGEST_LIMIT = 200;
const MAX_OFFSET = 10_000;
/** Unsent bytes of a socket above which it gets no more until it has read them. */
const MAX_UNSENT_BYTES = 512 * 1024;
/** Most cards of one message; the others come with the next full look. */
const MAX_CARDS = 60;
/** Most watching sockets of this process, of one client and in total. */
const MAX_PER_CLIENT = 16;
const MAX_IN_ALL = 128;
const RETRY_AFTER_SECONDS = 5;

/** A frame that asks to watch. */
export interface WatchFrame extends CardFilter {
  readonly limit?: number;
  readonly offset?: number;
}

/** The sessions that a frame selects. */
export const WATCH_PROPERTIES = {
  op: Type.Literal('watch'),
  env_id: Type.Optional(EnvId),
  group_id: Type.Optional(GroupId),
  client: Type.Optional(GroupId),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: LARGEST_LIMIT, default: DEFAULT_LIMIT })),
  offset: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: MAX_OFFSET,
      default: 0,
      description: 'Newest open sessions to leave out.',
    }),
  ),
};

/** @throws Problem `invalid_request` */
export const checkWatch = compileCheck(closed({ id: FrameIdSchema, ...WATCH_PROPERTIES }), 'watch');

/** One message to a watcher. */
export interface FeedMessage {
  /** New or changed sessions. */
  readonly sessions: readonly SessionCard[];
  /** Ids of all sessions to show, newest first, the ended ones after the open ones; absent where unchanged. */
  readonly order?: readonly string[];
  /** Open sessions that the filter matches, at most 10,000; comes with `order`. */
  readonly open?: number;
}

interface FeedTarget {
  /** Bytes that wait for the peer to read. */
  readonly bytesUnsent: number;
  send(message: FeedMessage): void;
  /** True if nothing more is sent: the sessions could not be read, or the message could not be written. */
  failed(error: unknown): void;
}

/** Number of watching sockets by client. */
const watching = new Map<string, number>();
let watchingInAll = 0;

/**
 * Sends a watcher the changes in its sessions. It polls them instead of being called at every step, so that a step costs the
 * same with and without watchers, and nothing is queued for a slow watcher.
 */
export class SessionFeed {
  readonly #services: Services;
  readonly #principal: Principal;
  readonly #frame: WatchFrame;
  readonly #target: FeedTarget;
  /** Last version sent of each session. */
  readonly #known = new Map<string, string>();
  #order = '';
  #looks = 0;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  /** @throws Problem `too_many_requests` */
  constructor(services: Services, principal: Principal, frame: WatchFrame, target: FeedTarget) {
    const own = watching.get(principal.name) ?? 0;
    if (own >= MAX_PER_CLIENT || watchingInAll >= MAX_IN_ALL) {
      const detail =
        own >= MAX_PER_CLIENT
          ? `${own} sockets of this token watch already, the most there may be`
          : `${watchingInAll} sockets watch already, the most this process serves`;
      throw new Problem('too_many_requests', detail, { retryAfterSeconds: RETRY_AFTER_SECONDS });
    }
    watching.set(principal.name, own + 1);
    watchingInAll++;
    this.#services = services;
    this.#principal = principal;
    this.#frame = frame;
    this.#target = target;
  }

  /** The first message; others follow until {@link stop}. */
  async start(): Promise<FeedMessage> {
    const message = await this.#look();
    this.#plan();
    return message ?? { sessions: [], order: [], open: 0 };
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    clearTimeout(this.#timer);
    const { name } = this.#principal;
    const own = watching.get(name)! - 1;
    if (own > 0) watching.set(name, own);
    else watching.delete(name);
    watchingInAll--;
  }

  #plan(): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => this.#again(), LOOK_MS).unref();
  }

  async #again(): Promise<void> {
    try {
      if (this.#target.bytesUnsent <= MAX_UNSENT_BYTES) {
        const message = await this.#look();
        if (message && !this.#stopped) this.#target.send(message);
      }
    } catch (error) {
      this.stop();
      this.#target.failed(error);
    }
    this.#plan();
  }

  /** Changes since the last look; undefined if there are none. */
  async #look(): Promise<FeedMessage | undefined> {
    const whole = this.#looks++ % WHOLE_EVERY === 0;
    const now = performance.now();
    const withinMs = whole ? undefined : now - this.#lookedAt + OVERLAP_MS;
    this.#lookedAt = now;
    const { entries, open } = await this.#cards(withinMs);
    const sessions: SessionCard[] = [];
    for (const { id, version, card } of entries) {
      if (!card || this.#known.get(id) === version || sessions.length >= MAX_CARDS) continue;
      this.#known.set(id, version);
      sessions.push(card);
    }
    const ids = entries.map(({ id }) => id);
    const order = `${open} ${ids.join(' ')}`;
    if (sessions.length === 0 && order === this.#order) return undefined;
    const isNew = order !== this.#order;
    if (isNew) {
      this.#order = order;
      const present = new Set(ids);
      for (const id of this.#known.keys()) if (!present.has(id)) this.#known.delete(id);
    }
    return { sessions, ...(isNew && { order: ids, open }) };
  }

  async #cards(withinMs: number | undefined): Promise<Cards> {
    const { env_id, group_id, client, limit = DEFAULT_LIMIT, offset } = this.#frame;
    const filter = { env_id, group_id, client };
    return cardsOf(this.#services, { principal: this.#principal, filter, limit, offset, withinMs });
  }
}

/** A message as JSON. */
export function feedText({ sessions, order, open }: FeedMessage): string {
  const tail = order === undefined ? '' : `,"order":${JSON.stringify(order)},"open":${open}`;
  return `{"sessions":[${sessions.map(cardText).join(',')}]${tail}}`;
}
