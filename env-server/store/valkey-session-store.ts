import { createHash } from 'node:crypto';
import type { PartRow } from '../persistence/session-rows.ts';
import type { StoreConnection } from './connection.ts';
import {
  type EndPosition,
  type EntryKind,
  type NewSession,
  NotStorable,
  type OpenLimits,
  type OpenRefusal,
  type Outcome,
  type RecordPosition,
  type RequestClaim,
  type SessionStore,
  type StoredChange,
  type StoredReplyRecord,
  type Taken,
  type Tombstone,
} from './session-store.ts';

const OUTCOMES: { readonly [code: string]: Outcome } = { 1: 'kept', 0: 'gone', '-1': 'fenced' };
const ALIVE_SECONDS = 10;
/** Sessions or records of one command, and characters of its records: the store does nothing else meanwhile. */
const MAX_AT_ONCE = 1000;
const MAX_LENGTH_AT_ONCE = 1024 * 1024;

/** Sessions and replies in Valkey, shared by every server that is connected. */
export class ValkeySessionStore implements SessionStore {
  readonly isShared = true;
  readonly connection: StoreConnection;
  /** Names this server in the store. */
  readonly replica: string;
  #appends: Append[] = [];
  #checked = new Map<string, ((top: Promise<string>) => void)[]>();
  #planned = false;

  constructor(connection: StoreConnection, replica: string) {
    this.connection = connection;
    this.replica = replica;
  }

  async open(
    owner: string,
    environment: string,
    limits: OpenLimits,
    sessions: readonly NewSession[],
    claim?: RequestClaim,
  ): Promise<OpenRefusal | undefined> {
    const kept = claim && {
      operation: claim.operation,
      asked: claim.asked,
      opened: sessions.map(({ id }) => id),
    };
    const args = sessions.flatMap(({ id, serial, settings, edition, groupId, pinned, ttlMs, record }) => [
      id,
      serial,
      JSON.stringify(settings),
      edition,
      groupId ?? '',
      pinned ? this.replica : '',
      Math.ceil(ttlMs),
      record,
    ]);
    const found = await this.connection.write(
      'ragenOpen',
      owner,
      environment,
      ...limits,
      sessions.length,
      claim ? hashOf(claim.key) : '',
      kept ? JSON.stringify(kept) : '',
      Math.ceil(claim?.ms ?? 0),
      ...args,
    );
    const [code, detail] = found as [number, number | string];
    if (code < 0) return { claimed: JSON.parse(detail as string) as StoredReplyRecord };
    return code === 0 ? undefined : { limit: code - 1, open: detail as number };
  }

  /** Adds a record. All records of a turn of the event loop go in one round trip, in commands of bounded size. */
  append(id: string, epoch: number, n: number, kind: EntryKind, body: string): Promise<Outcome> {
    this.#plan();
    return new Promise((kept, failed) =>
      this.#appends.push({ record: `${id} ${epoch}-${n} ${kind} ${body}`, kept, failed }),
    );
  }

  /** True while the newest record of a session is of this epoch. All checks of a turn go in one round trip. */
  async isWriter(id: string, epoch: number): Promise<boolean> {
    this.#plan();
    const top = await new Promise<string>((resolve, reject) => {
      const waiting = this.#checked.get(id) ?? [];
      waiting.push(found => found.then(resolve, reject));
      this.#checked.set(id, waiting);
    });
    return top.startsWith(`${epoch}-`);
  }

  #plan(): void {
    if (this.#planned) return;
    this.#planned = true;
    setImmediate(() => this.#flush());
  }

  /** Sends what waits for the end of the turn. Everything that is sent to a session's stream at once calls it before. */
  #flush(): void {
    this.#planned = false;
    for (const some of boundedCommands(this.#appends.splice(0))) {
      (this.connection.write('ragenAppend', ...some.map(({ record }) => record)) as Promise<number[]>).then(
        missed => {
          for (let i = 0; i < missed.length; i += 2) some[missed[i]].kept(OUTCOMES[missed[i + 1]]);
          for (const { kept } of some) kept('kept');
        },
        error => {
          for (const { failed } of some) failed(error);
        },
      );
    }
    const checked = [...this.#checked];
    this.#checked = new Map();
    for (let from = 0; from < checked.length; from += MAX_AT_ONCE) {
      const some = checked.slice(from, from + MAX_AT_ONCE);
      const tops = this.connection.run('ragenTops', ...some.map(([id]) => id)) as Promise<string[]>;
      some.forEach(([, waiting], index) => {
        const top = tops.then(all => all[index]);
        for (const give of waiting) give(top);
      });
    }
  }

  /**
   * Becomes the writer of a session, and waits until all that the session holds is as durable as `--durability` asks: an
   * earlier request may have got an error because its record was not.
   */
  async take(
    id: string,
    known: string | undefined,
    owner: string | undefined,
    forgetMs: number,
  ): Promise<Taken> {
    this.#flush();
    const args = [id, this.replica, known ?? '', owner ?? '', forgetMs];
    return this.#takenOf((await this.connection.write('ragenTake', ...args)) as readonly unknown[]);
  }

  /** Reads a session without becoming its writer. */
  async peek(id: string): Promise<Taken> {
    return this.#takenOf((await this.connection.run('ragenPeek', id)) as readonly unknown[]);
  }

  async checkpoint(
    id: string,
    { epoch, n }: RecordPosition,
    { head, parts, remove }: StoredChange,
  ): Promise<Outcome> {
    const fields: string[] = [];
    const gone = remove.map(({ kind, number }) => `${kind}:${number}`);
    let text: string;
    try {
      for (const { kind, number, data } of parts) fields.push(`${kind}:${number}`, data);
      text = JSON.stringify(head);
    } catch (error) {
      throw new NotStorable((error as Error).message, { cause: error });
    }
    this.#flush();
    const args = [id, `${epoch}-${n}`, text, fields.length / 2, ...fields, ...gone];
    return OUTCOMES[(await this.connection.run('ragenCheckpoint', ...args)) as number];
  }

  async end(
    id: string,
    at: EndPosition | undefined,
    tombstone: Tombstone,
    forgetMs: number,
  ): Promise<Outcome> {
    this.#flush();
    const args = [id, at?.epoch ?? '', JSON.stringify(tombstone), Math.ceil(forgetMs)];
    return OUTCOMES[(await this.connection.write('ragenEnd', ...args)) as number];
  }

  /**
   * Ends sessions that are due. After a time in which no server could be reached they are due when they have been idle once
   * more.
   * @returns their ids; `more` where others may be due
   */
  async expire(
    most: number,
    forgetMs: number,
  ): Promise<{ readonly ids: readonly string[]; readonly more: boolean }> {
    const found = await this.connection.run('ragenExpire', most, Math.ceil(forgetMs));
    const [ids, lookedAt] = found as [ids: string[], lookedAt: number];
    return { ids, more: lookedAt === most };
  }

  /** Moves the time at which sessions expire. */
  async touch(sessions: readonly (readonly [id: string, ttlMs: number])[]): Promise<void> {
    for (let from = 0; from < sessions.length; from += MAX_AT_ONCE) {
      const pairs = sessions.slice(from, from + MAX_AT_ONCE).flatMap(([id, ms]) => [id, Math.ceil(ms)]);
      await this.connection.run('ragenTouch', ...pairs);
    }
  }

  /** Says that this server lives: sessions that only it can play are not taken from it, and idle time counts. */
  async live(): Promise<void> {
    await this.connection.run('ragenLive', this.replica, ALIVE_SECONDS);
  }

  /** Resolves when all that any server has written is as durable as `--durability` asks. */
  async confirm(): Promise<void> {
    if (this.connection.durability !== 'replicated') return;
    // A replica that has this write has all before it.
    await this.connection.write('ragenLive', this.replica, ALIVE_SECONDS);
  }

  /** A page of ids of open sessions, of one client or of all, with serials above `after`; `last` where more may follow. */
  async list(
    owner: string | undefined,
    after: number,
  ): Promise<{ readonly ids: readonly string[]; readonly last: number | undefined }> {
    const found = await this.connection.command(client =>
      client.zrangebyscore(this.#listKey(owner), `(${after}`, '+inf', 'WITHSCORES', 'LIMIT', 0, MAX_AT_ONCE),
    );
    const ids = found.filter((_, i) => i % 2 === 0);
    return { ids, last: ids.length < MAX_AT_ONCE ? undefined : Number(found.at(-1)) };
  }

  /** Ids of open sessions, newest first. */
  async newest(owner: string | undefined, limit: number): Promise<readonly string[]> {
    return this.connection.command(client => client.zrevrange(this.#listKey(owner), 0, limit - 1));
  }

  #listKey(owner: string | undefined): string {
    return `${this.connection.prefix}${owner === undefined ? 'all' : `o:${owner}`}`;
  }

  /** Environment and group of sessions, for a filter that needs no more. */
  async facts(
    ids: readonly string[],
  ): Promise<readonly (readonly [environment: string | null, group: string | null])[]> {
    if (ids.length === 0) return [];
    return this.connection.command(async client => {
      const pipeline = client.pipeline();
      for (const id of ids) pipeline.hmget(`${this.connection.prefix}p:${id}`, 'environment', 'group');
      const found = (await pipeline.exec()) ?? [];
      return found.map(([error, row]) => {
        if (error) throw error;
        return row as [string | null, string | null];
      });
    });
  }

  /** Open sessions in all, or of one environment. */
  async count(environment?: string): Promise<number> {
    const key = environment === undefined ? 'all' : `e:${environment}`;
    return this.connection.command(client => client.zcard(this.connection.prefix + key));
  }

  /** The reply to a client's request that concerned no session yet. */
  async reply(owner: string, key: string): Promise<StoredReplyRecord | undefined> {
    const text = await this.connection.command(client => client.get(this.#replyKey(owner, key)));
    return text === null ? undefined : (JSON.parse(text) as StoredReplyRecord);
  }

  async keepReply(owner: string, key: string, record: StoredReplyRecord, ms: number): Promise<void> {
    await this.connection.command(client =>
      client.set(this.#replyKey(owner, key), JSON.stringify(record), 'PX', Math.ceil(ms)),
    );
  }

  /**
   * Keeps a reply where there is none, or the earlier one that it replaces.
   * @returns the reply that is there instead
   */
  async replaceReply(
    owner: string,
    key: string,
    record: StoredReplyRecord,
    ms: number,
    earlier: StoredReplyRecord | undefined,
  ): Promise<StoredReplyRecord | undefined> {
    const known = (await this.connection.write(
      'ragenReplaceReply',
      `k:${owner}:${hashOf(key)}`,
      earlier ? JSON.stringify(earlier) : '',
      JSON.stringify(record),
      Math.ceil(ms),
    )) as string | null;
    return known === null ? undefined : (JSON.parse(known) as StoredReplyRecord);
  }

  #replyKey(owner: string, key: string): string {
    return `${this.connection.prefix}k:${owner}:${hashOf(key)}`;
  }

  /** Reads the reply of a script. Content of an earlier era of the store may lack its last records. */
  #takenOf([state, first, era, fields, records]: readonly unknown[]): Taken {
    switch (state) {
      case 'elsewhere':
        return { state };
      case 'same':
        return { state, epoch: first as number };
      case 'ended':
        return { state, tombstone: first === '' ? undefined : (JSON.parse(first as string) as Tombstone) };
      default: {
        const known = fieldsOf(fields as readonly string[]);
        const entries = (records as [id: string, fields: string[]][]).map(([id, [, kind, , body]]) => {
          const [epoch, n] = id.split('-').map(Number);
          return { epoch, n, kind: kind as EntryKind, body };
        });
        const keepsAll = ['fsync', 'replicated'].includes(this.connection.durability);
        const { owner = '', settings, edition } = known.values;
        const isBehind = known.values.era !== era && !keepsAll;
        const { parts } = known;
        const content = { epoch: first as number, owner, settings, edition, isBehind, parts, entries };
        return { state: 'load', content };
      }
    }
  }
}

/** A record that is to be added. */
interface Append {
  /** Argument of the script. */
  readonly record: string;
  /** The first call counts. */
  readonly kept: (outcome: Outcome) => void;
  readonly failed: (error: unknown) => void;
}

/** Records in groups, each of one command. */
function* boundedCommands(appends: readonly Append[]): Generator<readonly Append[]> {
  let from = 0;
  let length = 0;
  for (const [index, { record }] of appends.entries()) {
    const own = record.length;
    if (index > from && (index - from >= MAX_AT_ONCE || length + own > MAX_LENGTH_AT_ONCE)) {
      yield appends.slice(from, index);
      from = index;
      length = 0;
    }
    length += own;
  }
  if (from < appends.length) yield appends.slice(from);
}

const hashOf = (key: string): string => createHash('sha256').update(key).digest('hex');

/** Fields of a session's hash: its parts, named `<kind>:<number>`, and what else there is of it. */
function fieldsOf(pairs: readonly string[]) {
  const values: { [field: string]: string | undefined } = {};
  const parts: PartRow[] = [];
  for (let i = 0; i < pairs.length; i += 2) {
    const [kind, number] = pairs[i].split(':');
    if (number === undefined) values[kind] = pairs[i + 1];
    else parts.push({ kind: kind as PartRow['kind'], number: Number(number), data: pairs[i + 1] });
  }
  parts.sort((a, b) => a.number - b.number);
  return { values, parts };
}
