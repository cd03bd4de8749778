import type { JsonObject } from '../../../shared/json.ts';
import { RecentMap } from '../../../shared/recent-map.ts';
import { problemOf } from '../../operations/problems.ts';
import type { Session } from '../../operations/schemas/session.ts';
import { Problem, type ProblemCode } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import type { AddressedSession } from '../addressing.ts';
import { McpPlay } from '../mcp/play.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';

/** Number of remembered names; beyond it, the least recently used ones are looked up again. */
const MAX_REMEMBERED = 10_000;
const PREFIX = 'ors.';
/** Problems of opening a session under a used id. */
const USED = new Set<ProblemCode>([
  'key_reused',
  'request_key_expired',
  'unknown_session',
  'session_closed',
  'session_expired',
  'session_lost',
]);

/** A session under its client's id. */
export interface OrsSession extends AddressedSession {
  readonly play: McpPlay;
}

/**
 * Sessions by the ids that clients send. An id is stored as the session's `group_id`, so that every process finds it,
 * also after a restart; the memory here is only a cache.
 */
export class OrsSessions {
  readonly #dispatcher: Dispatcher;
  readonly #problemHandler: ProblemHandler;
  readonly #known = new RecentMap<string, OrsSession>(MAX_REMEMBERED);

  constructor(dispatcher: Dispatcher, problemHandler: ProblemHandler) {
    this.#dispatcher = dispatcher;
    this.#problemHandler = problemHandler;
  }

  /**
   * Begins the episode of a task. Repeating the request returns the same episode.
   * @throws Problem `bad_request` where the id already has an episode
   */
  async open(principal: Principal, name: string, envId: string, task: JsonObject): Promise<OrsSession> {
    const play = this.#play(principal, envId);
    // Rejects an unknown environment.
    play.variant();
    const id = PREFIX + name;
    try {
      const { created } = await play.open({ ...task, group_id: id, request_key: id });
      return this.#remember(principal, name, await this.#attach(play, created.session_id));
    } catch (error) {
      const { code } = problemOf(error);
      if (!USED.has(code)) throw error;
      throw new Problem(
        'bad_request',
        `the session ${name} has had its episode: POST create_session for another`,
      );
    }
  }

  /**
   * The session under an id.
   * @param envId the environment that the request names
   * @throws Problem `unknown_session`
   */
  async get(principal: Principal, name: string, envId?: string): Promise<OrsSession> {
    const session = await this.find(principal, name);
    if (!session) {
      throw new Problem(
        'unknown_session',
        `no episode has begun under X-Session-ID ${name}: POST create first`,
      );
    }
    if (envId === undefined || envId === session.envId) return session;
    throw new Problem('unknown_session', `session ${name} plays ${session.envId}, not ${envId}`);
  }

  /** The session under an id, if there is one. */
  async find(principal: Principal, name: string): Promise<OrsSession | undefined> {
    const known = this.#known.get(keyOf(principal, name));
    if (known) return known;
    const page = await this.#run<SessionsFound>(principal, 'list', { group_id: PREFIX + name, limit: 1 });
    const [found] = page.sessions;
    if (!found) return undefined;
    const play = this.#play(principal, found.env_id);
    return this.#remember(principal, name, await this.#attach(play, found.session_id));
  }

  /** Marks a session as used. */
  async touch(principal: Principal, { id }: OrsSession): Promise<void> {
    await this.#run(principal, 'valid_actions', { session_id: id });
  }

  /** Ends the session under an id; an unknown id is accepted. */
  async close(principal: Principal, name: string): Promise<void> {
    const session = await this.find(principal, name);
    if (!session) return;
    this.#known.delete(keyOf(principal, name));
    await session.play.close(session.id);
  }

  async #attach(play: McpPlay, id: string): Promise<OrsSession> {
    return { ...(await play.attach(id)), play };
  }

  #play(principal: Principal, envId: string): McpPlay {
    return new McpPlay(this.#dispatcher, this.#problemHandler, principal, envId);
  }

  #run<T>(principal: Principal, op: string, input: JsonObject) {
    return this.#dispatcher.operate<T>(principal, op, input);
  }

  #remember(principal: Principal, name: string, session: OrsSession): OrsSession {
    this.#known.set(keyOf(principal, name), session);
    return session;
  }
}

interface SessionsFound {
  readonly sessions: readonly Pick<Session, 'session_id' | 'env_id'>[];
}

const keyOf = (principal: Principal, name: string): string => JSON.stringify([principal.name, name]);
