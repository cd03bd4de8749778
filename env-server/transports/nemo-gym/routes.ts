import { randomUUID } from 'node:crypto';
import { parseCookie, stringifySetCookie } from 'cookie';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isObject, type JsonObject } from '../../../shared/json.ts';
import { RecentMap } from '../../../shared/remembered.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { problemOf } from '../../operations/problems.ts';
import { Bag } from '../../operations/schemas/fields.ts';
import type { SessionDetail } from '../../operations/schemas/session.ts';
import { compileCheck } from '../../operations/validation.ts';
import { Problem, type ProblemCode } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { ENVIRONMENT_PATHS, envIdOf } from '../addressing.ts';
import { TaskSpec } from '../ors/requests.ts';
import { type ClientSession, ClientSessions, callTool } from '../ors/sessions.ts';
import { sendJson, sendJsonText } from '../replies/content.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { aggregate, rowsOf, textOf } from './rows.ts';

const ROOT = '/compat/nemo-gym';
/** Servers of NeMo Gym that observe rollouts put a rollout's id in front of the route. */
const ROLLOUTS = ['', '/ng-rollout/:rollout'];
/** Cookie with the session of a rollout. */
const COOKIE = 'ragen_rollout';
/** Number of rollouts with remembered verdicts. */
const MAX_REMEMBERED = 10_000;
const UNPROCESSABLE = 422;
const SERVER_ERROR = 500;
const TEXT = 'text/plain; charset=utf-8';

/** Problems of a rollout that has no episode, or none any more. */
const LOST = new Set<ProblemCode>(['unknown_session', 'session_closed', 'session_expired', 'session_lost']);

const SESSION_NAME = /^[\w.:-]{1,100}$/;
const Identity = { resources_session_id: Type.String({ pattern: SESSION_NAME.source }), episode_id: Bag };
const CHECKS = {
  row: compileCheck(TaskSpec, 'the row'),
  seed_session: compileCheck(closed({ ...Identity, task_id: Bag, task_data: Bag }), 'seed_session'),
  close_session: compileCheck(closed(Identity), 'close_session'),
  aggregate_metrics: compileCheck(closed({ verify_responses: Type.Array(Bag) }), 'aggregate_metrics'),
};
/** Fields of a row that begin the episode; a row may have any others. */
const ROW_FIELDS = Object.keys(TaskSpec.properties);

/** The reward of a rollout, in the fields of NeMo Gym's `BaseVerifyResponse`, and numbers for its metrics. */
interface Verdict extends JsonObject {
  readonly reward: number;
  /** True if the reward measures nothing, because the server is at fault or lost the episode. */
  readonly mask_sample: boolean;
}

/** `/compat/nemo-gym/{env_id}`: every environment as a resources server of NeMo Gym. */
export function addNemoGymRoutes(
  scope: FastifyInstance,
  dispatcher: Dispatcher,
  problemHandler: ProblemHandler,
): void {
  const server = new ResourcesServer(dispatcher, problemHandler);
  for (const environment of ENVIRONMENT_PATHS) {
    for (const rollout of ROLLOUTS) {
      const path = `${ROOT}${environment}${rollout}`;
      const add = (url: string, handler: Handler): void => {
        scope.post(`${path}${url}`, async (request, reply) => handler(callOf(request), reply));
      };
      add('/seed_session', (call, reply) => server.seed(call, reply));
      add('/verify', (call, reply) => server.verify(call, reply));
      add('/close_session', (call, reply) => server.close(call, reply));
      add('/aggregate_metrics', async ({ body }, reply) => {
        CHECKS.aggregate_metrics(body);
        return sendJsonText(reply, await aggregate(body.verify_responses as JsonObject[]));
      });
      add('/rows', async ({ principal, envId, body }, reply) => {
        const isLeft = () => reply.raw.destroyed;
        return reply.type('application/jsonl').send(await rowsOf(dispatcher, principal, envId, body, isLeft));
      });
      // An episode cannot be verified from its texts alone.
      scope.get(`${path}/reverify_mode`, (_request, reply) => sendJson(reply, 'unsupported'));
      scope.post(`${path}/:tool`, async (request, reply) =>
        server.call(callOf(request), (request.params as { tool: string }).tool, reply),
      );
    }
  }
}

type Handler = (call: Call, reply: FastifyReply) => FastifyReply | Promise<FastifyReply>;

/** A request of a rollout. */
interface Call {
  readonly principal: Principal;
  readonly envId: string;
  /** The rollout's session; empty without a cookie. */
  readonly name: string;
  readonly body: JsonObject;
}

function callOf(request: FastifyRequest): Call {
  const { principal, headers, body = {} } = request;
  if (!isObject(body)) throw new Problem('invalid_request', 'the body must be a JSON object');
  const name = parseCookie(headers.cookie ?? '')[COOKIE] ?? '';
  return { principal, envId: envIdOf(request), name: SESSION_NAME.test(name) ? name : '', body };
}

class ResourcesServer {
  readonly #dispatcher: Dispatcher;
  readonly #sessions: ClientSessions;
  /** Verdicts of ended episodes, for clients that lost a reply. */
  readonly #verdicts = new RecentMap<string, Promise<Verdict>>(MAX_REMEMBERED);

  constructor(dispatcher: Dispatcher, problemHandler: ProblemHandler) {
    this.#dispatcher = dispatcher;
    this.#sessions = new ClientSessions(dispatcher, problemHandler, 'nemo.');
  }

  /** Begins the episode of a row. A client that names the session may repeat the request. */
  async seed({ principal, envId, name: old, body }: Call, reply: FastifyReply): Promise<FastifyReply> {
    const isNamed = 'resources_session_id' in body;
    if (isNamed) CHECKS.seed_session(body);
    const row = isNamed ? (body.task_data as JsonObject) : body;
    const name = isNamed ? String(body.resources_session_id) : randomUUID();
    await this.#sessions.open(principal, name, envId, taskOf(row, envId));
    // An agent that begins again has no more use for what it began before.
    if (old !== '' && old !== name) await this.#sessions.close(principal, old);
    const cookie = { name: COOKIE, value: name, path: '/', httpOnly: true, sameSite: 'lax' } as const;
    reply.header('set-cookie', stringifySetCookie(cookie));
    return sendJson(reply, isNamed ? { resources_session_id: name } : {});
  }

  /** Answers with what the player sees then; for its mistakes, with the error. A fault of the server ends the episode. */
  async call(
    { principal, envId, name, body }: Call,
    tool: string,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    try {
      const session = await this.#session(principal, envId, name);
      const called = await callTool(session, tool, body);
      if (called.ok) return reply.type(TEXT).send(textOf(called.output.blocks));
      return sendJson(reply.code(UNPROCESSABLE), { error: called.error });
    } catch (error) {
      const { status, code, message } = problemOf(error);
      if (status >= SERVER_ERROR || code === 'too_many_requests') {
        this.#verdicts.set(keyOf(principal, name), Promise.resolve(masked('provider_unavailable', message)));
        await this.#sessions.close(principal, name);
      }
      throw error;
    }
  }

  /** Answers with the request and the return of its episode, which ends. */
  async verify({ principal, envId, name, body }: Call, reply: FastifyReply): Promise<FastifyReply> {
    const key = keyOf(principal, name);
    const verdict = this.#verdicts.get(key) ?? this.#judge(principal, envId, name);
    this.#verdicts.set(key, verdict);
    try {
      return sendJson(reply, { ...body, ...(await verdict) });
    } catch (error) {
      this.#verdicts.delete(key);
      return sendJson(reply, { ...body, ...verdictOfLost(error) });
    }
  }

  /** Ends the session that its client named. One that has not begun never will. */
  async close({ principal, envId, body }: Call, reply: FastifyReply): Promise<FastifyReply> {
    CHECKS.close_session(body);
    const name = String(body.resources_session_id);
    try {
      if (!(await this.#sessions.find(principal, name)))
        await this.#sessions.open(principal, name, envId, {});
    } catch (error) {
      // It has ended.
      if (problemOf(error).code !== 'bad_request') throw error;
    }
    await this.#sessions.close(principal, name);
    return sendJson(reply, { resources_session_id: name });
  }

  async #judge(principal: Principal, envId: string, name: string): Promise<Verdict> {
    const { id } = await this.#session(principal, envId, name);
    const now = await this.#dispatcher.operate<SessionDetail>(principal, 'get', { session_id: id });
    await this.#sessions.close(principal, name);
    return {
      reward: now.return,
      success: Number(now.info.success === true),
      steps: now.step,
      mask_sample: false,
      failure_kind: null,
      failure_reason: null,
    };
  }

  async #session(principal: Principal, envId: string, name: string): Promise<ClientSession> {
    if (name !== '') return this.#sessions.get(principal, name, envId);
    throw new Problem('unknown_session', `the request has no cookie ${COOKIE}: POST seed_session gives one`);
  }
}

/** @throws the error, unless it says that the episode is lost */
function verdictOfLost(error: unknown): Verdict {
  const { code, message } = problemOf(error);
  if (!LOST.has(code)) throw error;
  return masked(code === 'session_expired' ? code : 'session_lost', message);
}

/** @param kind one of NeMo Gym's `failure_kinds` */
const masked = (kind: string, reason: string): Verdict => ({
  reward: 0,
  success: 0,
  steps: 0,
  mask_sample: true,
  failure_kind: kind,
  failure_reason: reason,
});

const keyOf = (principal: Principal, name: string): string => JSON.stringify([principal.name, name]);

/** Start of a row's episode, in the fields of a session. @throws Problem where the row names another environment */
function taskOf(row: JsonObject, envId: string): JsonObject {
  if (row.env_id != null && row.env_id !== envId)
    throw new Problem('invalid_request', `the row has another env_id than its address, which plays ${envId}`);
  const given = ROW_FIELDS.filter(field => row[field] != null).map(field => [field, row[field]]);
  const task = Object.fromEntries(given) as JsonObject;
  CHECKS.row(task);
  return task;
}
