import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import type { Json } from '../../../shared/json.ts';
import type { EnvironmentList } from '../../operations/schemas/fields.ts';
import type { SessionDetail } from '../../operations/schemas/session.ts';
import { Problem } from '../../problems.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { ENVIRONMENT_PATHS, pagesOf } from '../addressing.ts';
import { sendJson } from '../replies/content.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { defaultEnvName, envNameOf, envNameOfPath, plainTask, readBody, sessionNameOf } from './requests.ts';
import {
  type ClientSession,
  ClientSessions,
  callTool,
  event,
  promptBlocks,
  sendEvents,
  sendResult,
  toolList,
} from './sessions.ts';
import { countTasks, splitsOf, taskAt, tasksOf } from './tasks.ts';

/** Clients drop the path of their base URL, so the routes are also at the root. */
const PREFIXES = ['', '/compat/ors'];
/** The environment in a path: none, an id with `%2F`, or an id with a slash. */
const ENVIRONMENTS = ['', '/:name(^.+-v\\d+$)', '/:namespace/:name(^.+-v\\d+$)'];
/** Below it, the routes of one environment belong to `openenv/`. */
const OPENENV = '/compat/openenv';
const HTTP_UNAVAILABLE = 503;

/** `/list_environments`, `/create_session`, `/{env}/call` and so on: the HTTP interface of the Open Reward Standard. */
export async function addOrsRoutes(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  problemHandler: ProblemHandler,
): Promise<void> {
  const transport = new OrsTransport(dispatcher, problemHandler);
  await app.register(async scope => {
    takeEmptyBodies(scope);
    for (const prefix of PREFIXES) {
      const add: AddRoute = (method, url, handler) =>
        scope.route({ method, url: `${prefix}${url}`, handler: async (...given) => handler(...given) });
      transport.addServerRoutes(add);
      for (const environment of ENVIRONMENTS) {
        transport.addEnvironmentRoutes((method, url, handler) =>
          add(method, `${environment}${url}`, handler),
        );
      }
    }
    // The task routes of OpenEnv's RFC 006 are those of the standard.
    for (const environment of ENVIRONMENT_PATHS) {
      transport.addTaskRoutes((method, url, handler) =>
        scope.route({
          method,
          url: `${OPENENV}${environment}${url}`,
          handler: async (...given) => handler(...given),
        }),
      );
    }
  });
}

/** The Python clients send a content type even without a body. */
function takeEmptyBodies(scope: FastifyInstance): void {
  const parseAs = 'buffer';
  scope.addContentTypeParser('application/octet-stream', { parseAs }, (_request, body, done) => {
    if (body.length === 0) done(null, undefined);
    else
      done(
        new Problem('unsupported_media_type', 'the body must be JSON: send content-type: application/json'),
      );
  });
}

type Handler = (request: FastifyRequest, reply: FastifyReply) => FastifyReply | Promise<FastifyReply>;
type AddRoute = (method: 'GET' | 'POST', url: string, handler: Handler) => void;

class OrsTransport {
  readonly #dispatcher: Dispatcher;
  readonly #problemHandler: ProblemHandler;
  readonly #sessions: ClientSessions;

  constructor(dispatcher: Dispatcher, problemHandler: ProblemHandler) {
    this.#dispatcher = dispatcher;
    this.#problemHandler = problemHandler;
    this.#sessions = new ClientSessions(dispatcher, problemHandler, 'ors.');
  }

  /** Routes without an environment: the life of an episode. */
  addServerRoutes(add: AddRoute): void {
    add('GET', '/health', (_request, reply) => {
      const { draining } = this.#dispatcher.services.sessions.shutdown;
      if (draining) reply.code(HTTP_UNAVAILABLE);
      return sendJson(reply, { status: draining ? 'draining' : 'ok' });
    });
    add('GET', '/list_environments', async (request, reply) =>
      sendJson(reply, await this.#environments(request)),
    );
    add('POST', '/create_session', (_request, reply) => {
      const sid = randomUUID();
      return sendEvents(reply, event('task_id', sid), event('end', JSON.stringify({ sid })));
    });
    add('POST', '/create', (request, reply) => this.#create(request, reply));
    add('POST', '/ping', async (request, reply) => {
      const session = await this.#sessions.get(request.principal, sessionNameOf(request));
      await this.#sessions.touch(request.principal, session);
      return sendJson(reply, { status: 'ok' });
    });
    for (const route of ['/delete', '/delete_session']) {
      add('POST', route, async (request, reply) => {
        const sid = sessionNameOf(request);
        await this.#sessions.close(request.principal, sid);
        return sendJson(reply, { sid });
      });
    }
  }

  addEnvironmentRoutes(add: AddRoute): void {
    add('GET', '/tools', (request, reply) => sendJson(reply, toolList(this.#variant(request))));
    this.addTaskRoutes(add);
    this.#addEpisodeRoutes(add);
  }

  /** Adds the routes that list tasks. */
  addTaskRoutes(add: AddRoute): void {
    add('GET', '/splits', (request, reply) => sendJson(reply, [...splitsOf(this.#variant(request))]));
    add('POST', '/tasks', (request, reply) => {
      const { split } = readBody('tasks', request);
      return sendJson(reply, {
        tasks: tasksOf(this.#variant(request), split),
        env_name: envNameOf(request),
      });
    });
    add('POST', '/num_tasks', (request, reply) => {
      const { split } = readBody('tasks', request);
      return sendJson(reply, { num_tasks: countTasks(this.#variant(request), split) });
    });
    add('POST', '/task', (request, reply) => {
      const { split, index } = readBody('task', request);
      return sendJson(reply, { task: taskAt(this.#variant(request), split, index) });
    });
    add('POST', '/task_range', (request, reply) => {
      const { split, start, stop } = readBody('task_range', request);
      const tasks = tasksOf(this.#variant(request), split, start ?? undefined, stop ?? undefined);
      return sendJson(reply, { tasks });
    });
  }

  #addEpisodeRoutes(add: AddRoute): void {
    add('GET', '/prompt', async (request, reply) => {
      const session = await this.#session(request);
      const { id, variant } = session;
      const now = await this.#dispatcher.operate<SessionDetail>(request.principal, 'get', {
        session_id: id,
      });
      return sendJson(reply, promptBlocks(variant, now));
    });
    add('GET', '/task_tools', async (request, reply) =>
      sendJson(reply, toolList((await this.#session(request)).variant)),
    );
    add('POST', '/call', async (request, reply) => {
      const { name, input, task_id: given } = readBody('call', request);
      const session = await this.#session(request);
      const id = given ?? randomUUID();
      return sendResult(reply, id, callTool(session, name, input as { [key: string]: Json }, id), {
        problemHandler: this.#problemHandler,
        deliver: send => this.#dispatcher.services.sessions.deliver(send),
      });
    });
  }

  async #create(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { env_name: named, task_spec: spec, split, index } = readBody('create', request);
    const hasIndex = split != null && index != null;
    if ((spec != null) === hasIndex || (split == null) !== (index == null)) {
      throw new Problem('invalid_request', 'create: give either task_spec, or both split and index');
    }
    const envId = named ?? envNameOf(request);
    const task = spec ? plainTask(spec) : taskAt(this.#variantOf(envId), split!, index!);
    const sid = sessionNameOf(request);
    await this.#sessions.open(request.principal, sid, envId, task);
    return sendJson(reply, { sid });
  }

  async #environments(request: FastifyRequest): Promise<string[]> {
    const names: string[] = [];
    const pages = pagesOf<Static<typeof EnvironmentList>>(
      this.#dispatcher,
      request.principal,
      'list_environments',
    );
    for await (const { environments } of pages) names.push(...environments.map(({ env_id: id }) => id));
    const first = defaultEnvName(request);
    return first !== undefined && names.includes(first)
      ? [first, ...names.filter(name => name !== first)]
      : names;
  }

  #session(request: FastifyRequest): Promise<ClientSession> {
    return this.#sessions.get(request.principal, sessionNameOf(request), envNameOfPath(request));
  }

  #variant(request: FastifyRequest): Variant {
    return this.#variantOf(envNameOf(request));
  }

  #variantOf(envId: string): Variant {
    return this.#dispatcher.services.catalog.variant(envId);
  }
}
