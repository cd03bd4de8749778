import type { JsonObject } from '../../shared/json.ts';
import { atOnce, type Sliced } from '../../shared/slices.ts';
import type { ObservationFormat } from '../environments/core/environment.ts';
import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';
import { inScheduledSlices } from '../environments/core/slices.ts';
import { invalidRequest } from '../problems.ts';
import { beginEpisode, type EpisodeState, requireReseedable, withDynamics } from './episodes/episode.ts';
import type { Variant } from './episodes/variant.ts';
import { newId } from './ids.ts';
import type { Admission, SessionLimits } from './limits/admission.ts';
import { type ByteAccount, sessionBudgetExceeded } from './limits/budgets.ts';
import { newSessionSize, Session } from './session.ts';
import type { Shutdown } from './shutdown.ts';
import type { SessionJournal } from './storage/new-session.ts';

export interface CreateRequest {
  readonly seed?: number;
  readonly dynamics_seed?: number;
  readonly options?: JsonObject;
  readonly count?: number;
  readonly group_id?: string;
  readonly ttl_s?: number;
  readonly observation_format?: ObservationFormat;
  readonly state_key?: boolean;
}

export type CloneRequest = Pick<CreateRequest, 'count' | 'group_id' | 'dynamics_seed'>;

/** Settings shared by sessions that are opened together. */
type OpenSettings = Pick<Session, 'owner' | 'variant' | 'groupId' | 'format' | 'ttlMs'>;

/** Owner of the opened sessions. */
export interface SessionHost {
  readonly recorder: SessionJournal | undefined;
  readonly now: () => number;
  wall(time: number): number;
  /** Adds an opened session. */
  add(session: Session): void;
  /** Ends a session that no client knows. */
  end(session: Session): void;
}

/** Sessions of a group opened without a break. */
const OPENED_AT_ONCE = 32;

/** Opens sessions within the limits: new ones, groups and clones. */
export class SessionOpener {
  readonly #host: SessionHost;
  readonly #limits: SessionLimits;
  readonly #admission: Admission;
  readonly #shutdown: Shutdown;
  readonly #replica: number | undefined;
  #serial = 0;

  constructor(
    host: SessionHost,
    limits: SessionLimits,
    admission: Admission,
    shutdown: Shutdown,
    replica: number | undefined,
  ) {
    this.#host = host;
    this.#limits = limits;
    this.#admission = admission;
    this.#shutdown = shutdown;
    this.#replica = replica;
  }

  /** Later sessions get serials after this one. */
  countFrom(serial: number): void {
    this.#serial = Math.max(this.#serial, serial);
  }

  /**
   * Opens a session or a group, all or none.
   * @throws Problem `too_many_sessions`, `draining`, `invalid_request`; InvalidOptions
   */
  create(owner: string, variant: Variant, request: CreateRequest): MaybePromise<Session[]> {
    const count = request.count ?? 1;
    const format = request.observation_format ?? 'text';
    if (!variant.formats.includes(format)) {
      const detail = `${variant.environment.spec.id} has no observation format "${format}"; it has ${variant.formats.join(', ')}`;
      throw invalidRequest('/observation_format', detail);
    }
    const groupId = request.group_id ?? (count > 1 ? newId('g') : null);
    const ttlMs = 1000 * (request.ttl_s ?? this.#limits.idleTtlSeconds);
    const { account } = this.#admission.client(owner);
    account.requireRoom(variant.openingBytes);
    return this.#admitted(owner, variant, count, () =>
      chain(beginEpisodes(variant, request, count), episodes => {
        try {
          this.#shutdown.requireRunning();
          requireRoom(account, variant, episodes);
        } catch (error) {
          releaseStates(variant, episodes);
          throw error;
        }
        return this.#openAll({ owner, variant, groupId, format, ttlMs }, episodes);
      }),
    );
  }

  /**
   * @throws Problem `too_many_sessions`, `draining`, `unsupported`, `session_budget_exceeded` and the like;
   * `invalid_request` for a dynamics seed where the environment draws its own random numbers
   */
  clone(session: Session, request: CloneRequest): MaybePromise<Session[]> {
    const { count = 1, dynamics_seed: dynamicsSeed } = request;
    if (dynamicsSeed !== undefined) requireReseedable(session.variant);
    const { owner, variant, format, ttlMs } = session;
    variant.requireCopyable();
    session.episode.weigh();
    const episode = session.episode.share();
    const group = request.group_id ?? session.groupId;
    return this.#admitted(owner, variant, count, () => {
      this.#shutdown.requireRunning();
      const episodes = copiesOf(episode, count, dynamicsSeed);
      requireRoom(this.#admission.client(owner).account, variant, episodes);
      return this.#openAll({ owner, variant, groupId: group, format, ttlMs }, episodes);
    });
  }

  /** Opens and journals sessions; a large group in slices. */
  #openAll(settings: OpenSettings, episodes: readonly EpisodeState[]): MaybePromise<Session[]> {
    const opening = this.#opening(settings, episodes);
    const opened = episodes.length > OPENED_AT_ONCE ? inScheduledSlices(opening) : atOnce(opening);
    return chain(opened, sessions => this.#whenStored(settings, sessions));
  }

  /** Resolves when the store has all sessions; if it rejects one, all are closed. */
  #whenStored({ owner, variant }: OpenSettings, opened: Session[]): MaybePromise<Session[]> {
    if (!opened.some(({ storing }) => storing)) return opened;
    return Promise.all(opened.map(({ storing }) => storing)).then(
      () => opened,
      error => {
        // The caller that admitted all of them releases all of them.
        this.#admission.count(owner, variant.counters, opened.length);
        for (const session of opened) this.#host.end(session);
        throw error;
      },
    );
  }

  /**
   * Reserves room for all sessions before opening the first.
   * @throws Problem `draining` when the server stops meanwhile; opened sessions are then closed and unused episodes
   * released
   */
  *#opening(settings: OpenSettings, episodes: readonly EpisodeState[]): Sliced<Session[]> {
    const { owner, variant } = settings;
    const { account } = this.#admission.client(owner);
    const { recorder } = this.#host;
    const isShared = recorder?.isShared ?? false;
    const sizes = episodes.map(newSessionSize);
    let setAside = sizes.reduce((sum, size) => sum + size, 0);
    account.add(setAside);
    const opened: Session[] = [];
    try {
      for (let first = 0; first < episodes.length; first += OPENED_AT_ONCE) {
        if (first > 0) yield;
        this.#shutdown.requireRunning();
        const next = episodes.slice(first, first + OPENED_AT_ONCE);
        for (let i = 0; i < next.length; i++) {
          account.add(-sizes[first + i]);
          setAside -= sizes[first + i];
          opened.push(this.#open(settings, next[i]));
        }
        if (!isShared) recorder?.opened(opened.slice(first));
      }
      // A shared store opens all of a group or none.
      if (isShared) recorder!.opened(opened);
      return opened;
    } catch (error) {
      // The caller that admitted all of them releases all of them.
      this.#admission.count(owner, variant.counters, opened.length);
      for (const session of opened) this.#host.end(session);
      releaseStates(variant, episodes.slice(opened.length));
      throw error;
    } finally {
      account.add(-setAside);
    }
  }

  /** Opens sessions within the limits. If that fails, they do not count. */
  #admitted(
    owner: string,
    variant: Variant,
    count: number,
    open: () => MaybePromise<Session[]>,
  ): MaybePromise<Session[]> {
    this.#shutdown.requireOpen();
    const refuse = (error: unknown): never => {
      this.#admission.count(owner, variant.counters, -count);
      throw error;
    };
    const begin = (): MaybePromise<Session[]> => {
      try {
        const sessions = open();
        return sessions instanceof Promise ? sessions.catch(refuse) : sessions;
      } catch (error) {
        return refuse(error);
      }
    };
    // A shared store counts the sessions of all servers; sessions in memory here may have ended elsewhere.
    if (this.#host.recorder?.isShared) this.#admission.count(owner, variant.counters, count);
    else this.#admission.admit(owner, variant.counters, count);
    const opened = begin();
    if (opened instanceof Promise) this.#shutdown.follow(opened);
    return opened;
  }

  #open(settings: OpenSettings, episode: EpisodeState): Session {
    const { account } = this.#admission.client(settings.owner);
    settings.variant.opened(account);
    const session = new Session(
      {
        ...settings,
        account,
        recorder: this.#host.recorder,
        id: newId('s'),
        serial: this.#nextSerial(),
        now: this.#host.now,
        wall: this.#host.wall,
        deadline: this.#host.now() + 1000 * this.#limits.lifetimeSeconds,
      },
      episode,
    );
    this.#host.add(session);
    return session;
  }

  #nextSerial(): number {
    this.#serial = serialAfter(this.#serial, Date.now(), this.#replica);
    return this.#serial;
  }
}

/**
 * Serials of one millisecond, one for each of this many servers; with more sessions in it, serials run ahead of the
 * clock.
 */
const SERIALS_PER_MS = 64;

/**
 * The next serial: one more than the last, or taken from the clock, so that serials of several servers are in one
 * order.
 */
function serialAfter(last: number, now: number, replica: number | undefined): number {
  if (replica === undefined) return last + 1;
  const slot = Math.max(Math.floor(last / SERIALS_PER_MS) + 1, Math.floor(now));
  return slot * SERIALS_PER_MS + (replica % SERIALS_PER_MS);
}

/**
 * Members of a group begin in the same state; an environment that cannot be copied is reset for each with the same
 * seed. With a dynamics seed d, member k gets d + k. If one cannot begin, the others are released.
 */
function beginEpisodes(
  variant: Variant,
  request: CreateRequest,
  count: number,
): MaybePromise<EpisodeState[]> {
  const { seed: given, dynamics_seed: dynamicsSeed, options, state_key: stateKeys } = request;
  const first = beginEpisode(variant, { seed: given, dynamicsSeed, options, stateKeys });
  if (variant.copyable) return chain(first, episode => copiesOf(episode, count, dynamicsSeed));
  return chain(first, async episode => {
    const seed = variant.seedable ? episode.seed : undefined;
    const others = Array.from({ length: count - 1 }, async () => beginEpisode(variant, { seed, options }));
    const outcomes = await Promise.allSettled(others);
    const begun = outcomes.filter(outcome => outcome.status === 'fulfilled').map(({ value }) => value);
    const failure = outcomes.find(outcome => outcome.status === 'rejected');
    if (!failure) return [episode, ...begun];
    releaseStates(variant, [episode, ...begun]);
    throw failure.reason;
  });
}

/** The same episode for several sessions; with a dynamics seed d, member k gets d + k. */
function copiesOf(episode: EpisodeState, count: number, dynamicsSeed: number | undefined): EpisodeState[] {
  if (dynamicsSeed === undefined) return new Array<EpisodeState>(count).fill(episode);
  return Array.from({ length: count }, (_, member) => withDynamics(episode, dynamicsSeed + member));
}

/** Ends unused episodes where the environment holds them. */
function releaseStates(variant: Variant, episodes: readonly EpisodeState[]): void {
  for (const { state } of episodes) variant.releaseState(state);
}

/** @throws Problem `session_budget_exceeded`, `token_budget_exceeded`, `server_budget_exceeded` */
function requireRoom(account: ByteAccount, variant: Variant, episodes: readonly EpisodeState[]): void {
  let bytes = variant.openingBytes;
  for (const episode of episodes) {
    const size = newSessionSize(episode);
    const most = account.limits.maxBytesPerSession;
    if (size > most) throw sessionBudgetExceeded('that is to be opened', 0, size, most);
    bytes += size;
  }
  account.requireRoom(bytes);
}
