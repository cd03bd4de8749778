import type { StoredContent } from '../../store/session-store.ts';
import type { ValkeySessionStore } from '../../store/valkey-session-store.ts';
import type { ListRequest } from '../manager.ts';
import type { Principal } from '../principal.ts';
import type { Session } from '../session.ts';
import { restore, settingsOf } from './taken-sessions.ts';
import type { SharedParts, WrittenSessions } from './written-sessions.ts';

const MAX_PEEKED = 500;

/** Reads sessions without becoming their writer: lists, walls, replies to repeated requests. */
export class SeenSessions {
  readonly #parts: SharedParts;
  readonly #written: WrittenSessions;
  /** Sessions read without taking them, by their state in the store. */
  readonly #peeked = new Map<string, { readonly content: StoredContent; readonly session: Session }>();

  constructor(parts: SharedParts, written: WrittenSessions) {
    this.#parts = parts;
    this.#written = written;
  }

  get #store(): ValkeySessionStore {
    return this.#parts.store;
  }

  /**
   * Current sessions in the order of their ids, without taking them; ended ones are left out. Sessions of other servers are
   * read once for each of their states.
   */
  async look(ids: readonly string[]): Promise<readonly Session[]> {
    const seen = await Promise.all(ids.map(id => this.#lookAt(id)));
    // A copy that left memory meanwhile does not show whether the session has ended.
    const now = await Promise.all(seen.map((session, i) => (session?.closed ? this.#peek(ids[i]) : session)));
    return now.filter(session => session !== undefined);
  }

  async #lookAt(id: string): Promise<Session | undefined> {
    const held = this.#written.get(id);
    if (held && this.#written.isUsable(held)) {
      await held.pending;
      if (this.#written.isUsable(held) && (await this.#store.isWriter(id, held.epoch))) return held.session;
    }
    return this.#peek(id);
  }

  /** Sessions of the principal, oldest first; all sessions for an administrator. */
  async list(
    principal: Principal,
    { envId, groupId, after, limit }: ListRequest,
  ): Promise<readonly Session[]> {
    const owner = principal.scopes.has('admin') ? undefined : principal.name;
    const found: string[] = [];
    for (let from = after; found.length < limit; ) {
      const page = await this.#store.list(owner, from);
      const facts =
        envId === undefined && groupId === undefined ? undefined : await this.#store.facts(page.ids);
      found.push(
        ...page.ids.filter(
          (_, i) =>
            !facts ||
            ((envId === undefined || facts[i][0] === envId) &&
              (groupId === undefined || facts[i][1] === groupId)),
        ),
      );
      if (page.last === undefined) break;
      from = page.last;
    }
    return this.look(found.slice(0, limit));
  }

  /** Open sessions of the principal, newest first; all sessions for an administrator. */
  async newest(principal: Principal, limit: number): Promise<readonly Session[]> {
    const owner = principal.scopes.has('admin') ? undefined : principal.name;
    return this.look(await this.#store.newest(owner, limit));
  }

  async #peek(id: string): Promise<Session | undefined> {
    const found = await this.#store.peek(id);
    const known = this.#peeked.get(id);
    if (known) {
      this.#peeked.delete(id);
      const [a, b] = [
        known.content.entries.at(-1),
        found.state === 'load' ? found.content.entries.at(-1) : undefined,
      ];
      if (found.state === 'load' && a && b && a.epoch === b.epoch && a.n === b.n) {
        this.#peeked.set(id, known);
        return known.session;
      }
      known.session.releaseAll();
    }
    if (found.state !== 'load') return undefined;
    const { content } = found;
    const settings = settingsOf(this.#parts, id, content);
    let made: Session | undefined;
    try {
      if (this.#parts.editionOf(settings.envId) !== content.edition) return undefined;
      const { sessions } = this.#parts;
      const session = await restore(this.#parts, id, content, stored => {
        made = sessions.restore(stored.session, stored.variant, stored.image);
        return made;
      });
      this.#peeked.get(id)?.session.releaseAll();
      this.#peeked.set(id, { content, session });
      if (this.#peeked.size > MAX_PEEKED) {
        const [[oldest, { session: old }]] = this.#peeked;
        old.releaseAll();
        this.#peeked.delete(oldest);
      }
      return session;
    } catch (error) {
      made?.releaseAll();
      this.#parts.log.debug({ session_id: id, err: error }, `session ${id} could not be looked at`);
      return undefined;
    }
  }
}
