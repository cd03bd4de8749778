import type { RecordBody } from '../../persistence/journal/records.ts';
import type { EndedSession } from '../ended.ts';
import type { Session } from '../session.ts';
import type { Recorder } from './recorded-episode.ts';

/** Keeps what sessions do: on this machine, or in a store that several servers share. */
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
