import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { EnvironmentList } from '../../operations/schemas/environment.ts';
import type { SessionDetail } from '../../operations/schemas/session.ts';
import { Problem } from '../../problems.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { ENVIRONMENT_PATHS, pagesOf } from '../addressing.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { sendJson } from '../replies/send.ts';
import { defaultEnvName, envNameOf, envNameOfPath, plainTask, readBody, sessionNameOf } from './requests.ts';
import {
  callTool,
  event,
  type OrsSession,
  OrsSessions,
  promptBlocks,
  sendEvents,
  sendResult,
  toolList,
} from './sessions.ts';

/** Characters of a wrong name that an error repeats. */
const MAX_SHOWN_LENGTH = 100;

/** Part of the tasks of an environment. */
interface TaskSplit extends JsonObject {
  readonly name: string;
  readonly type: 'train' | 'validation' | 'test';
}

/** A task, as in `task_spec` of `/create` and in task lists. */
type TaskSpec = {
  /** Absent where the environment has no randomness. */
  readonly seed?: number;
  /** Present where the environment has splits. */
  readonly config?: { readonly split: string };
};

interface SeedRange {
  readonly first: number;
  readonly count: number;
}

/** The seeds of each split; the ranges never overlap, even for an environment without splits. */
const SEEDS: { readonly [type in TaskSplit['type']]: SeedRange } = {
  train: { first: 0, count: 10_000 },
  validation: { first: 1_000_000, count: 1000 },
  test: { first: 2_000_000, count: 1000 },
};

const TYPES = Object.keys(SEEDS) as TaskSplit['type'][];

/** The splits of an environment: its own, or ranges of seeds. An environment without randomness has one task. */
function splitsOf(variant: Variant): readonly TaskSplit[] {
  const own = ownSplits(variant);
  const types = variant.seedable ? TYPES.filter(type => !own || own.has(type)) : TYPES.slice(0, 1);
  return types.map(type => ({ name: type, type }));
}

/** Number of tasks in a split. */
function countTasks(variant: Variant, split: string): number {
  return variant.seedable ? SEEDS[typeOf(variant, split)].count : 1;
}

/**
 * Tasks of a split: the seeds of its range, with the environment's own split where it has splits.
 * @param start first index; negative ones count from the end, as in Python
 * @param stop index after the last
 * @throws Problem `bad_request` for an unknown split
 */
function tasksOf(variant: Variant, split: string, start = 0, stop?: number): TaskSpec[] {
  const type = typeOf(variant, split);
  const count = countTasks(variant, split);
  const at = (index: number) => Math.min(index < 0 ? Math.max(count + index, 0) : index, count);
  const from = at(start);
  return Array.from({ length: Math.max(0, at(stop ?? count) - from) }, (_, i) =>
    specOf(variant, type, from + i),
  );
}

/** @throws Problem `bad_request` for an unknown index or split */
function taskAt(variant: Variant, split: string, index: number): TaskSpec {
  const count = countTasks(variant, split);
  const at = index < 0 ? count + index : index;
  if (at < 0 || at >= count) {
    throw new Problem('bad_request', `index ${index} is outside the ${count} tasks of the split ${split}`);
  }
  return specOf(variant, typeOf(variant, split), at);
}

function specOf(variant: Variant, type: TaskSplit['type'], index: number): TaskSpec {
  return {
    ...(variant.seedable && { seed: SEEDS[type].first + index }),
    ...(ownSplits(variant) && { config: { split: type } }),
  };
}

/** The values of the configuration key `split`; undefined for an environment without splits. */
function ownSplits({ environment }: Variant): ReadonlySet<unknown> | undefined {
  const { properties } = environment.spec.configSchema as { properties?: { [key: string]: SplitSchema } };
  const { anyOf, enum: listed } = properties?.split ?? {};
  const values = listed ?? anyOf?.map(choice => choice.const);
  return values && TYPES.some(type => values.includes(type)) ? new Set(values) : undefined;
}

interface SplitSchema {
  readonly anyOf?: readonly { readonly const?: unknown }[];
  readonly enum?: readonly unknown[];
}

function typeOf(variant: Variant, split: string): TaskSplit['type'] {
  const splits = splitsOf(variant);
  const found = splits.find(({ name }) => name === split);
  if (found) return found.type;
  const known = splits.map(({ name }) => name).join(', ');
  throw new Problem(
    'bad_request',
    `there is no split ${JSON.stringify(split.slice(0, MAX_SHOWN_LENGTH))}; there are ${known}`,
  );
}

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
  readonly #sessions: OrsSessions;

  constructor(dispatcher: Dispatcher, problemHandler: ProblemHandler) {
    this.#dispatcher = dispatcher;
    this.#problemHandler = problemHandler;
    this.#sessions = new OrsSessions(dispatcher, problemHandler);
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

  #session(request: FastifyRequest): Promise<OrsSession> {
    return this.#sessions.get(request.principal, sessionNameOf(request), envNameOfPath(request));
  }

  #variant(request: FastifyRequest): Variant {
    return this.#variantOf(envNameOf(request));
  }

  #variantOf(envId: string): Variant {
    return this.#dispatcher.services.catalog.variant(envId);
  }
}
