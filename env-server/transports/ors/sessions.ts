import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { FastifyReply } from 'fastify';
import type { JsonObject } from '../../../shared/json.ts';
import { RecentMap } from '../../../shared/remembered.ts';
import { problemOf } from '../../operations/problems.ts';
import type { Session, SessionDetail } from '../../operations/schemas/session.ts';
import { PROBLEMS, Problem, type ProblemCode } from '../../problems.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import type { AddressedSession } from '../addressing.ts';
import { RpcError } from '../mcp/json-rpc.ts';
import {
  contentOf,
  McpPlay,
  type ToolContent,
  type ToolDocument,
  type ToolResult,
  toolsOf,
} from '../mcp/tools.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';

/** Number of remembered names; beyond it, the least recently used ones are looked up again. */
const MAX_REMEMBERED = 10_000;
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
export interface ClientSession extends AddressedSession {
  readonly play: McpPlay;
}

/**
 * Sessions by the ids that clients send. An id is stored as the session's `group_id`, so that every process finds it,
 * also after a restart; the memory here is only a cache.
 */
export class ClientSessions {
  readonly #dispatcher: Dispatcher;
  readonly #problemHandler: ProblemHandler;
  readonly #prefix: string;
  readonly #known = new RecentMap<string, ClientSession>(MAX_REMEMBERED);

  /** @param prefix start of the `group_id`, which keeps the ids of protocols apart */
  constructor(dispatcher: Dispatcher, problemHandler: ProblemHandler, prefix: string) {
    this.#dispatcher = dispatcher;
    this.#problemHandler = problemHandler;
    this.#prefix = prefix;
  }

  /**
   * Begins the episode of a task. Repeating the request returns the same episode.
   * @throws Problem `bad_request` where the id already has an episode
   */
  async open(principal: Principal, name: string, envId: string, task: JsonObject): Promise<ClientSession> {
    const play = this.#play(principal, envId);
    // Rejects an unknown environment.
    play.variant();
    const id = this.#prefix + name;
    try {
      const { created } = await play.open({ ...task, group_id: id, request_key: id });
      return this.#remember(principal, name, await this.#attach(play, created.session_id));
    } catch (error) {
      const { code } = problemOf(error);
      if (!USED.has(code)) throw error;
      throw new Problem('bad_request', `the session ${name} has had its episode: another needs a new id`);
    }
  }

  /**
   * The session under an id.
   * @param envId the environment that the request names
   * @throws Problem `unknown_session`
   */
  async get(principal: Principal, name: string, envId?: string): Promise<ClientSession> {
    const session = await this.find(principal, name);
    if (!session) {
      throw new Problem('unknown_session', `no episode has begun under the session id ${name}`);
    }
    if (envId === undefined || envId === session.envId) return session;
    throw new Problem('unknown_session', `session ${name} plays ${session.envId}, not ${envId}`);
  }

  /** The session under an id, if there is one. */
  async find(principal: Principal, name: string): Promise<ClientSession | undefined> {
    const known = this.#known.get(keyOf(principal, name));
    if (known) return known;
    const page = await this.#run<SessionsFound>(principal, 'list', {
      group_id: this.#prefix + name,
      limit: 1,
    });
    const [found] = page.sessions;
    if (!found) return undefined;
    const play = this.#play(principal, found.env_id);
    return this.#remember(principal, name, await this.#attach(play, found.session_id));
  }

  /** Marks a session as used. */
  async touch(principal: Principal, { id }: ClientSession): Promise<void> {
    await this.#run(principal, 'valid_actions', { session_id: id });
  }

  /** Ends the session under an id; an unknown id is accepted. */
  async close(principal: Principal, name: string): Promise<void> {
    const session = await this.find(principal, name);
    if (!session) return;
    this.#known.delete(keyOf(principal, name));
    await session.play.close(session.id);
  }

  async #attach(play: McpPlay, id: string): Promise<ClientSession> {
    return { ...(await play.attach(id)), play };
  }

  #play(principal: Principal, envId: string): McpPlay {
    return new McpPlay(this.#dispatcher, this.#problemHandler, principal, envId);
  }

  #run<T>(principal: Principal, op: string, input: JsonObject) {
    return this.#dispatcher.operate<T>(principal, op, input);
  }

  #remember(principal: Principal, name: string, session: ClientSession): ClientSession {
    this.#known.set(keyOf(principal, name), session);
    return session;
  }
}

interface SessionsFound {
  readonly sessions: readonly Pick<Session, 'session_id' | 'env_id'>[];
}

const keyOf = (principal: Principal, name: string): string => JSON.stringify([principal.name, name]);

/** Longest data of one event, in UTF-16 units: clients read lines of bounded length. */
const CHUNK_LENGTH = 4096;
/** Milliseconds after which a slow result is announced by its id. */
const AT_ONCE_MS = 50;
/** Milliseconds between keep-alive events: clients give up on a silent stream after 30 seconds. */
const PING_MS = 10_000;
const PING = ': ping\n\n';
const WHITE_SPACE = /\s/;
const LOW_SURROGATE = /[\uDC00-\uDFFF]/;

/** One event of the stream. Its data has no line breaks. */
export const event = (name: 'task_id' | 'chunk' | 'end' | 'error', data: string): string =>
  `event: ${name}\ndata: ${data}\n\n`;

/** Sends a reply once everything it acknowledges is stored (see `SessionManager.deliver`). */
type Deliver = (reply: () => void) => void;

/** Sends events that are ready. */
export function sendEvents(reply: FastifyReply, ...events: readonly string[]): FastifyReply {
  return streamed(reply).send(events.join(''));
}

/**
 * Answers with the call's id, then its result in parts. While a slow result is pending, keep-alive events are sent; a
 * client that disconnected asks again with the id.
 * @throws what the call throws, where the status of the reply reports it
 */
export async function sendResult(
  reply: FastifyReply,
  id: string,
  result: Promise<object>,
  { problemHandler, deliver }: { problemHandler: ProblemHandler; deliver: Deliver },
): Promise<FastifyReply> {
  const begun = event('task_id', id);
  const text = result.then(
    output => resultEvents(JSON.stringify(output)).join(''),
    error => event('error', oneLine(problemHandler.document(error).detail)),
  );
  const first = await Promise.race([
    result.then(
      () => undefined,
      (error: unknown) => ({ error }),
    ),
    delay(AT_ONCE_MS, 'later' as const),
  ]);
  if (first === 'later') return streamed(reply).send(Readable.from(waiting(begun, text, deliver)));
  if (first && isReportedByStatus(first.error)) throw first.error;
  return sendEvents(reply, begun, await text);
}

async function* waiting(begun: string, text: Promise<string>, deliver: Deliver): AsyncGenerator<string> {
  yield begun;
  const clock = new AbortController();
  try {
    for (;;) {
      const ping = delay(PING_MS, PING, { signal: clock.signal });
      const next = await Promise.race([text, ping]);
      if (next !== PING) break;
      yield PING;
    }
  } finally {
    clock.abort();
  }
  await new Promise<void>(resolve => deliver(resolve));
  yield await text;
}

/** JSON without line breaks as events: the parts of a text, the last one marked as the end. */
export function resultEvents(json: string): string[] {
  const events: string[] = [];
  let start = 0;
  while (json.length - start > CHUNK_LENGTH) {
    const isHalf = LOW_SURROGATE.test(json[start + CHUNK_LENGTH]);
    const stop = start + CHUNK_LENGTH - (isHalf ? 1 : 0);
    events.push(event('chunk', escapedStart(json.slice(start, stop))));
    start = stop;
  }
  events.push(event('end', escapedStart(json.slice(start))));
  return events;
}

/** Clients strip leading white space of data, so it is written as an escape; it only occurs in strings. */
function escapedStart(part: string): string {
  if (!WHITE_SPACE.test(part[0])) return part;
  return `\\u${part.charCodeAt(0).toString(16).padStart(4, '0')}${part.slice(1)}`;
}

const oneLine = (text: string): string => text.replaceAll(/\s+/g, ' ');

function streamed(reply: FastifyReply): FastifyReply {
  return reply.headers({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
    'x-accel-buffering': 'no',
  });
}

/** A task begins an episode and `/delete` ends it, so no tool does. */
const NO_TOOLS = new Set(['reset', 'close_session']);
const SERVER_ERROR = 500;
const UNPROCESSABLE = 422;

/** Text or a picture; clients read `detail`, so it is always present. */
export type Block =
  | { readonly type: 'text'; readonly text: string; readonly detail: null }
  | { readonly type: 'image'; readonly data: string; readonly mimeType: string; readonly detail: null };

/** Result of a tool call: `RunToolOutput` of the standard. */
export type CallOutput =
  | { readonly ok: true; readonly output: ToolOutput }
  | { readonly ok: false; readonly error: string };

interface ToolOutput {
  readonly blocks: readonly Block[];
  /** Fields of a step in `/v1` that the other fields do not cover and the client does not know. */
  readonly metadata: JsonObject;
  /** Null when no step was taken. */
  readonly reward: number | null;
  readonly finished: boolean;
}

/** The environment's tools for players: those of MCP that play. */
export function playingTools(variant: Variant): readonly ToolDocument[] {
  const tools = [...toolsOf(variant, 'connection').values()];
  return tools
    .filter(({ common }) => common === undefined || !NO_TOOLS.has(common))
    .map(({ document }) => document);
}

/** The same tools as the standard lists them. */
export function toolList(variant: Variant): JsonObject {
  return {
    tools: playingTools(variant).map(({ name, description, inputSchema }) => ({
      name,
      description,
      input_schema: inputSchema,
    })),
  };
}

/**
 * First prompt of a player: the task, the meaning of the symbols, and the first observation.
 * @param now current state of the session
 */
export function promptBlocks(
  { environment, config }: Variant,
  now: Pick<SessionDetail, 'observation'>,
): Block[] {
  const { instruction, legend = [] } = environment.describe(config);
  const symbols = legend.map(({ symbol, meaning }) => `${symbol} ${meaning}`).join('; ');
  const task = symbols === '' ? instruction : `${instruction}\nLegend: ${symbols}.`;
  return [block({ type: 'text', text: task }), ...contentOf(now.observation).map(block)];
}

/**
 * Calls a tool. As in the standard, an agent's mistake gives an output with an error.
 * @param key request key: repeating the call takes the action once
 * @throws Problem for what the agent cannot change: no session, a limit, a fault
 */
export async function callTool(
  { play, ...session }: ClientSession,
  name: string,
  input: JsonObject,
  key?: string,
): Promise<CallOutput> {
  const { common } = toolsOf(session.variant, 'connection').get(name) ?? {};
  if (common !== undefined && NO_TOOLS.has(common)) return unknownTool(session.variant, name);
  try {
    return { ok: true, output: outputOf(await play.perform(session, name, input, key)) };
  } catch (error) {
    if (error instanceof RpcError) return unknownTool(session.variant, name);
    const { status, code, message } = problemOf(error);
    const isAgents = status === UNPROCESSABLE || code === 'episode_over' || code === 'unsupported';
    if (!isAgents) throw error;
    return { ok: false, error: message };
  }
}

function unknownTool(variant: Variant, name: string): CallOutput {
  const known = playingTools(variant)
    .map(tool => tool.name)
    .join(', ');
  return { ok: false, error: `'${name}' is not a valid tool; there are ${known}` };
}

function outputOf({ content, structuredContent }: ToolResult): ToolOutput {
  const { observation: _shown, session_id: _id, episode_id: _episode, ...fields } = structuredContent;
  const { reward = null, ...metadata } = fields;
  const { terminated, truncated } = metadata;
  return {
    blocks: content.map(block),
    metadata,
    reward: reward as number | null,
    finished: terminated === true || truncated === true,
  };
}

function block(content: ToolContent): Block {
  return { ...content, detail: null };
}

/** Errors after which it is unknown whether the action was taken. */
const UNSURE = new Set<ProblemCode>(['internal', 'worker_unavailable', 'step_timeout']);

/**
 * True if the reply's status reports an error, after which the client may ask again. After a fault it must not: the
 * action may have been taken.
 */
function isReportedByStatus(error: unknown): boolean {
  const { status, code } = problemOf(error);
  return status < SERVER_ERROR || (PROBLEMS[code].retryable && !UNSURE.has(code));
}
