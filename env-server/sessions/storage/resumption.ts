import type { Logger } from 'pino';
import type { Json } from '../../../shared/json.ts';
import { type ReplayFindings, SessionContinuity } from '../../persistence/journal/continuity.ts';
import type { JournalFile } from '../../persistence/journal/journal-files.ts';
import type { JournalRecord, OpenBody } from '../../persistence/journal/records.ts';
import { replayJournal } from '../../persistence/journal/replay.ts';
import type { WrapperChoice } from '../../wrappers/wrap.ts';
import type { EndedSession, EndReason } from '../ended.ts';
import { dynamicsSeedOf, type EpisodeState, withDynamics } from '../episodes/episode.ts';
import type { SessionManager } from '../manager.ts';
import type { Session } from '../session.ts';
import type { VariantCatalog } from '../variant-catalog.ts';
import { episodeOfRecord } from './recorded-episode.ts';
import { openedSession, redo } from './redo.ts';

export interface ResumptionParts {
  readonly sessions: SessionManager;
  readonly catalog: VariantCatalog;
  readonly log: Logger;
  readonly editionOf: (envId: string) => string;
  /** The reply to a request that began an episode. */
  readonly viewOf: (session: Session) => Json;
  /** Called with sessions that cannot be opened again. */
  readonly onLost: (ended: EndedSession) => void;
}

/** Does again what the journal has of sessions, on top of what the database has of them. */
export class Resumption {
  readonly #parts: ResumptionParts;
  readonly #continuity = new SessionContinuity();
  readonly #stop = new AbortController();
  /** Stored by a server that ended in order: no records are missing. */
  readonly #atRest = new Set<string>();
  /** The last session that was recorded in full: those that follow may begin as it did. */
  #example: { readonly id: string; readonly episode: EpisodeState } | undefined;
  #records = 0;

  constructor(parts: ResumptionParts) {
    this.#parts = parts;
  }

  /** Records of a session up to a number are in the database. */
  covers(sessionId: string, recorded: number, atRest = false): void {
    this.#continuity.covers(sessionId, recorded);
    if (atRest) this.#atRest.add(sessionId);
  }

  /** The server ends before all is done. */
  stop(): void {
    this.#stop.abort();
  }

  get stopped(): boolean {
    return this.#stop.signal.aborted;
  }

  /** Resolves when all is done, or it was stopped; others have their turn meanwhile. */
  async run(folder: string, files: readonly JournalFile[]): Promise<void> {
    const findings: ReplayFindings = { faults: [], incomplete: undefined };
    const begun = performance.now();
    for await (const { record, position } of replayJournal(folder, files, findings, this.#stop.signal)) {
      if (record.kind === 'clientReply') {
        const { owner, ...reply } = record.body;
        this.#parts.sessions.replies(owner).remember(reply);
        continue;
      }
      this.#learnExample(record);
      if (this.#continuity.verdict(record, position) !== 'apply') continue;
      this.#records++;
      await this.#apply(record);
    }
    if (!this.stopped) this.#conclude(findings, performance.now() - begun);
  }

  #learnExample({ kind, sessionId, body }: JournalRecord): void {
    if (kind !== 'open' || !body.episode) return;
    this.#example = { id: sessionId, episode: episodeOfRecord(body.seed, body.options, body.episode) };
  }

  async #apply(record: JournalRecord): Promise<void> {
    const { sessions } = this.#parts;
    if (record.kind === 'open') {
      this.#open(record.sessionId, record.body);
      return;
    }
    const session = sessions.get(record.sessionId);
    if (!session) return;
    session.recorded = record.n;
    try {
      if (record.kind === 'end') {
        const { ending, reason, forget_at: forgetAt } = record.body;
        sessions.endAs(session, ending as EndReason, reason, forgetAt);
      } else {
        const redone = redo(session, record, this.#parts.viewOf);
        if (redone) await redone;
      }
      session.changed = true;
    } catch (error) {
      this.#parts.log.error({ session_id: session.id, err: error }, `session ${session.id} is lost`);
      sessions.lose(session, `record ${record.n} of it could not be done again: ${(error as Error).message}`);
    }
  }

  #open(id: string, body: OpenBody): void {
    const { sessions, catalog, editionOf, log } = this.#parts;
    const { owner, env_id: envId } = body;
    const end = (ending: EndReason, reason: string | null): void => {
      if (reason !== null) log.warn({ session_id: id, reason }, `session ${id} is lost`);
      this.#parts.onLost({ id, owner, ending, reason, forgetAt: sessions.forgetAt });
    };
    if (body.lost !== undefined) {
      end('session_lost', body.lost);
      return;
    }
    if (body.deadline <= sessions.now()) {
      end('session_expired', null);
      return;
    }
    try {
      const episode = body.episode
        ? episodeOfRecord(body.seed, body.options, body.episode)
        : this.#exampleOf(body);
      const wrappers = body.wrappers as unknown as readonly WrapperChoice[];
      const variant = catalog.variant(envId, body.config, wrappers);
      if (editionOf(envId) !== body.edition) {
        end('session_lost', `${envId} was replaced while the session was open`);
        return;
      }
      sessions.recall(openedSession(id, body, episode), variant).changed = true;
    } catch (error) {
      end('session_lost', (error as Error).message);
    }
  }

  #exampleOf({ like, dynamics_seed: dynamicsSeed }: OpenBody): EpisodeState {
    if (!this.#example || this.#example.id !== like)
      throw new Error('its beginning is missing in the journal');
    const { episode } = this.#example;
    return dynamicsSeed === dynamicsSeedOf(episode) ? episode : withDynamics(episode, dynamicsSeed!);
  }

  #conclude(findings: ReplayFindings, ms: number): void {
    const { sessions, log } = this.#parts;
    let behind = 0;
    for (const id of this.#continuity.behind(findings)) {
      const session = this.#atRest.has(id) ? undefined : sessions.get(id);
      if (!session) continue;
      session.rollBack();
      behind++;
    }
    const { faults, incomplete } = findings;
    for (const fault of faults) {
      const { kind, file, offset } = fault;
      const where = kind === 'missing' ? file : `${file} from ${offset} on`;
      log[kind === 'torn' ? 'warn' : 'error'](fault, `the journal is ${kind}: ${where}`);
    }
    if (incomplete !== undefined) {
      log.error({ behind }, `the last records of the journal may be missing: ${incomplete}`);
    }
    const counts = { records: this.#records, behind, ms: Math.round(ms) };
    log.info(counts, `replayed ${this.#records} records of the journal`);
  }
}
