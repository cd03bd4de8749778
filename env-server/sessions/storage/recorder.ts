import { type Journal, RecordTooLarge } from '../../persistence/journal/journal.ts';
import { NO_SESSION, type RecordBody, type RecordKind } from '../../persistence/journal/records.ts';
import type { EndedSession } from '../ended.ts';
import type { EpisodeState } from '../episodes/episode.ts';
import type { Session } from '../session.ts';
import { openBody, type Recorder } from './recorded-episode.ts';

export interface RecorderParts {
  /** Current definition of an environment id. */
  readonly editionOf: (envId: string) => string;
  /** Why a session cannot be kept over the end of the process. */
  readonly lostBy: (session: Session) => string | undefined;
  /** A record is too large for the journal: resolves when the database has everything that is done in this turn. */
  readonly onTooLarge: () => Promise<void>;
}

/** Journal of what sessions do: on this machine, or in a store that several servers share. */
export interface SessionJournal extends Recorder<Session> {
  /** Sessions live in it beyond this server: those in memory are copies. */
  readonly isShared: boolean;
  /** Replies to what was recorded wait for the disk. */
  readonly isSlow: boolean;
  /** @throws Problem `storage_full`, `storage_failed` */
  requireRoom(): void;
  /**
   * Delivers a reply when what was recorded before it is kept.
   * @param reads it acknowledges nothing
   */
  deliver(reply: () => void, reads?: boolean): void;
  /**
   * Sessions were opened by one operation.
   * @param like one that was opened before them: episodes in the state of its are not repeated
   */
  opened(sessions: readonly Session[], like?: Session): void;
  ended(session: Session, ended: EndedSession): void;
  /**
   * Remembers the reply to a client's request that concerns no session yet.
   * @returns where the journal cannot take it, a promise that resolves when the database has it
   */
  clientReply(body: RecordBody<'clientReply'>): Promise<void> | undefined;
}

/** Journals what sessions do. It counts the records of each session, and records nothing before `begin` and after `end`. */
export class SessionRecorder implements SessionJournal {
  readonly isShared = false;
  readonly #journal: Journal;
  readonly #parts: RecorderParts;
  #active = false;

  constructor(journal: Journal, parts: RecorderParts) {
    this.#journal = journal;
    this.#parts = parts;
  }

  begin(): void {
    this.#active = true;
  }

  end(): void {
    this.#active = false;
  }

  requireRoom(): void {
    if (this.#active) this.#journal.requireRoom();
  }

  deliver(reply: () => void, reads = false): void {
    if (this.#active) this.#journal.deliver(reply, reads);
    else reply();
  }

  get isSlow(): boolean {
    return this.#journal.isSlow;
  }

  /** Records what was done with a session. What the journal cannot take the session is `storing` until the database has it. */
  append<K extends RecordKind>(session: Session, kind: K, body: RecordBody<K>): void {
    if (!this.#active) return;
    const n = session.recorded + 1;
    try {
      this.#journal.append(kind, session.id, n, body);
      session.recorded = n;
    } catch (error) {
      if (!(error instanceof RecordTooLarge)) throw error;
      session.recorded = n;
      const storing = this.#parts.onTooLarge().then(() => {
        if (session.storing === storing) session.storing = undefined;
      });
      session.storing = storing;
    }
  }

  opened(sessions: readonly Session[], like?: Session): void {
    if (!this.#active) return;
    let first: { readonly id: string; readonly episode: EpisodeState } | undefined;
    if (like && like !== sessions[0]) first = { id: like.id, episode: like.episode.capture() };
    for (const session of sessions) {
      const episode = session.episode.capture();
      const same = first?.episode.state === episode.state ? first.id : undefined;
      first ??= { id: session.id, episode };
      const { settings } = session;
      const edition = this.#parts.editionOf(settings.envId);
      const lost = this.#parts.lostBy(session);
      this.append(session, 'open', openBody(settings, edition, episode, { lost, like: same }));
    }
  }

  ended(session: Session, { owner, ending, reason, forgetAt }: EndedSession): void {
    this.append(session, 'end', { owner, ending, reason, forget_at: forgetAt });
  }

  clientReply(body: RecordBody<'clientReply'>): Promise<void> | undefined {
    if (!this.#active) return undefined;
    try {
      this.#journal.append('clientReply', NO_SESSION, 0, body);
      return undefined;
    } catch (error) {
      if (!(error instanceof RecordTooLarge)) throw error;
      return this.#parts.onTooLarge();
    }
  }
}
