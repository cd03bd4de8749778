import { randomInt } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { isObject, type Json, type JsonObject, parseJson } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { RecentMap } from '../../../shared/remembered.ts';
import { compiled } from '../../../shared/schema/check.ts';
import { observationSpaces } from '../../environments/core/environment.ts';
import { gymnasiumSpace, jsonSchema, type Space } from '../../environments/core/spaces.ts';
import type { OperationInput } from '../../operations/operation.ts';
import { problemOf } from '../../operations/problems.ts';
import type {
  CreatedSession,
  Session,
  SessionDetail,
  SessionPage,
  StepResult,
} from '../../operations/schemas/session.ts';
import { Problem, type ProblemCode } from '../../problems.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { findSession, pagesOf } from '../addressing.ts';
import { floatText, sendJson, sendJsonText } from '../replies/content.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';

/** Value that gym-http-api writes for a missing bound. */
const UNBOUNDED = 1e100;

/** A space in gym-http-api's form: its name and bounds; a `Box` has lists of bounds. */
function spaceInfo(space: Space): JsonObject {
  const { type, ...bounds } = withoutStart(gymnasiumSpace(space));
  if (space.type !== 'Box') return { name: type, ...bounds };
  const size = space.shape.reduce((product, length) => product * length, 1);
  const each = (bound: number): Json[] => new Array<Json>(size).fill(bound);
  return {
    name: type,
    shape: [...space.shape],
    low: each(space.low ?? -UNBOUNDED),
    high: each(space.high ?? UNBOUNDED),
  };
}

/** True if a path part is a member of a space, as text or as JSON; ids count from 0. */
function contains(space: Space, text: string): boolean {
  const { check } = compiled(jsonSchema(space));
  const value = parseJson(text) as Json | undefined;
  return check(text) || (value !== undefined && check(actionFromZeroBased(space, value)));
}

/** True if a space description claims nothing that is not true of the space. */
function describes(space: Space, claims: JsonObject): boolean {
  const info = spaceInfo(space);
  return Object.entries(claims).every(
    ([key, value]) => key in info && JSON.stringify(info[key]) === JSON.stringify(value),
  );
}

/**
 * A random member of a space, with ids from 0; undefined for text and JSON spaces, because most of their members make
 * no sense.
 */
function sample(space: Space): Json | undefined {
  if (space.type === 'Discrete') return randomInt(space.n);
  if (space.type !== 'Dict') return undefined;
  const drawn: { [name: string]: Json } = {};
  for (const [name, inner] of Object.entries(space.spaces)) {
    const value = sample(inner);
    if (value === undefined) return undefined;
    drawn[name] = value;
  }
  return drawn;
}

// gym-http-api's discrete spaces begin at 0, because its clients know only `n`. Ids are translated in both directions;
// names and everything else stay the same.

/** The environment's action for one that counts from 0. */
function actionFromZeroBased(space: Space, action: Json): Json {
  if (space.type === 'Discrete')
    return Number.isInteger(action) ? Number(action) + (space.start ?? 0) : action;
  if (space.type !== 'Dict' || !isObject(action)) return action;
  return Object.fromEntries(
    Object.entries(action).map(([name, value]) => [
      name,
      Object.hasOwn(space.spaces, name) ? actionFromZeroBased(space.spaces[name], value) : value,
    ]),
  );
}

/** The Gymnasium form of a space without the `start` of its discrete parts. */
function withoutStart(gymnasium: JsonObject): JsonObject {
  const { start: _start, ...rest } = gymnasium;
  const { spaces, space } = rest;
  if (Array.isArray(spaces))
    return { ...rest, spaces: spaces.map(inner => withoutStart(inner as JsonObject)) };
  if (isObject(spaces)) {
    const entries = Object.entries(spaces).map(([name, inner]) => [name, withoutStart(inner as JsonObject)]);
    return { ...rest, spaces: Object.fromEntries(entries) };
  }
  return isObject(space) ? { ...rest, space: withoutStart(space) } : rest;
}

const PREFIX = '/compat/gym/v1';
const HTTP_NO_CONTENT = 204;
const HTTP_BAD_REQUEST = 400;
const HTTP_SERVER_ERROR = 500;
/** Statuses more specific than 400. */
const KEPT_STATUSES = new Set([401, 403, 413, 415, 429]);
/** Errors that mean the instance does not exist. */
const NO_INSTANCE = new Set<ProblemCode>(['unknown_session', 'session_closed', 'session_expired']);

/** A request answered with 400 and `{message}`; the messages are gym-http-api's. */
class InvalidUsage extends Error {}

/** `/compat/gym/v1/…`: the routes of gym-http-api; an instance is a session. */
export async function addGymRoutes(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  problemHandler: ProblemHandler,
): Promise<void> {
  await app.register(
    async scope => {
      scope.setErrorHandler((error, request, reply) => replyError(error, request, reply, problemHandler));
      addInstances(scope, dispatcher);
      addSpaces(scope, dispatcher);
      addRefusals(scope);
    },
    { prefix: PREFIX },
  );
}

type Handler = (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>;

/** A route with and without the slash at its end. */
function route(scope: FastifyInstance, method: 'GET' | 'POST', url: string, handler: Handler): void {
  for (const each of [url, `${url}/`]) scope.route({ method, url: each, handler });
}

/** Number of remembered instances; beyond it, the least recently used ones are looked up again. */
const MAX_REMEMBERED = 10_000;

function addInstances(scope: FastifyInstance, dispatcher: Dispatcher): void {
  const spaces = new RecentMap<string, Space>(MAX_REMEMBERED);
  /** The action space of an instance. The step checks whether the client may play it. */
  const actionSpace = async (request: FastifyRequest, id: string): Promise<Space> => {
    const known = spaces.get(id);
    if (known) return known;
    const { variant } = await findSession(dispatcher, request.principal, id);
    const space = variant.environment.spec.actionSpace;
    spaces.set(id, space);
    return space;
  };
  const run = <T>(request: FastifyRequest, op: string, input: OperationInput) =>
    dispatcher.operate<T>(request.principal, op, input);
  route(scope, 'POST', '/envs', async (request, reply) => {
    const body = readBody(request.body);
    const envId = required(body, 'env_id');
    const seed = optional(body, 'seed');
    try {
      const created = await run<CreatedSession>(request, 'create', {
        env_id: envId,
        ...(seed !== undefined && { seed }),
      });
      return sendJson(reply, { instance_id: created.session_id });
    } catch (error) {
      if (problemOf(error).code !== 'unknown_environment') throw error;
      throw new InvalidUsage(
        `Attempted to look up malformed environment ID '${envId}': ${problemOf(error).message}`,
      );
    }
  });
  route(scope, 'GET', '/envs', async (request, reply) => {
    const all: { [id: string]: string } = {};
    for await (const { sessions } of pagesOf<Static<typeof SessionPage>>(
      dispatcher,
      request.principal,
      'list',
    ))
      for (const { session_id, env_id } of sessions) all[session_id] = env_id;
    return sendJson(reply, { all_envs: all });
  });
  route(scope, 'POST', '/envs/:instance/reset', async (request, reply) => {
    const id = instanceOf(request);
    const now = await run<SessionDetail>(request, 'get', { session_id: id });
    if (isFresh(now)) return sendJson(reply, { observation: now.observation as Json });
    const seed = now.seed === null ? {} : { seed: nextSeed(now.seed) };
    const { observation } = await run<Session>(request, 'reset', { session_id: id, ...seed });
    return sendJson(reply, { observation: observation as Json });
  });
  route(scope, 'POST', '/envs/:instance/step', async (request, reply) => {
    const given = required(readBody(request.body), 'action');
    const id = instanceOf(request);
    const action = actionFromZeroBased(await actionSpace(request, id), given);
    const result = await run<StepResult>(request, 'step', { session_id: id, action });
    return sendJsonText(reply, stepText(result));
  });
  route(scope, 'POST', '/envs/:instance/close', async (request, reply) => {
    const id = instanceOf(request);
    await run(request, 'get', { session_id: id });
    await run(request, 'close', { session_id: id });
    spaces.delete(id);
    return reply.code(HTTP_NO_CONTENT).send();
  });
}

/** The episode begun when the instance was made, while it has no steps: the first reset returns it. */
function isFresh({ step, episode_id: id, session_id: session }: SessionDetail): boolean {
  return step === 0 && id === `${session}.1`;
}

/** Seed of the next reset, so that an instance made with a seed is reproducible to its end. */
function nextSeed(seed: number): number {
  return Random.fromSeed(seed).uint32();
}

function stepText({ observation, reward, terminated, truncated, info }: StepResult): string {
  const fields = truncated && !terminated ? { ...info, 'TimeLimit.truncated': true } : info;
  return `{"observation":${JSON.stringify(observation)},"reward":${floatText(reward)},"done":${terminated || truncated},"info":${JSON.stringify(fields)}}`;
}

function addSpaces(scope: FastifyInstance, dispatcher: Dispatcher): void {
  const variantOf = async (request: FastifyRequest): Promise<Variant> =>
    (await findSession(dispatcher, request.principal, instanceOf(request))).variant;
  const actionSpace = async (request: FastifyRequest): Promise<Space> =>
    (await variantOf(request)).environment.spec.actionSpace;
  const observationSpace = async (request: FastifyRequest): Promise<Space> => {
    const { environment, config } = await variantOf(request);
    return observationSpaces(environment, config).text;
  };
  const path = '/envs/:instance';
  route(scope, 'GET', `${path}/action_space`, async (request, reply) =>
    sendJson(reply, { info: spaceInfo(await actionSpace(request)) }),
  );
  route(scope, 'GET', `${path}/action_space/sample`, async (request, reply) => {
    const { spec, references = {} } = (await variantOf(request)).environment;
    const drawn = sample(spec.actionSpace);
    if (drawn !== undefined) return sendJson(reply, { action: drawn });
    if (!Object.hasOwn(references, 'random')) {
      throw new InvalidUsage(
        `${spec.id} has no random actions; an action is, for example, ${JSON.stringify(spec.exampleAction)}`,
      );
    }
    const plan = await dispatcher.operate<{ actions: Json[] }>(request.principal, 'reference', {
      session_id: instanceOf(request),
      policy: 'random',
    });
    return sendJson(reply, { action: plan.actions[0] ?? spec.exampleAction });
  });
  route(scope, 'GET', `${path}/action_space/contains/:x`, async (request, reply) => {
    const { x } = request.params as { x: string };
    return sendJson(reply, { member: contains(await actionSpace(request), x) });
  });
  route(scope, 'GET', `${path}/observation_space`, async (request, reply) =>
    sendJson(reply, { info: spaceInfo(await observationSpace(request)) }),
  );
  route(scope, 'POST', `${path}/observation_space/contains`, async (request, reply) => {
    const claims = readBody(request.body);
    return sendJson(reply, { member: describes(await observationSpace(request), claims) });
  });
}

const NO_MONITOR =
  'Monitoring is not offered: the episode is recorded anyway, see /v1/sessions/{instance_id}/trajectory';

const NOT_OFFERED: readonly (readonly [path: string, why: string])[] = [
  ['/envs/:instance/monitor/start', NO_MONITOR],
  ['/envs/:instance/monitor/close', NO_MONITOR],
  ['/upload', 'Uploading is not offered: the service it was for is gone'],
  ['/shutdown', 'Clients may not stop the server: send its process SIGTERM'],
];

function addRefusals(scope: FastifyInstance): void {
  for (const [path, why] of NOT_OFFERED) {
    route(scope, 'POST', path, async () => {
      throw new InvalidUsage(why);
    });
  }
}

function instanceOf(request: FastifyRequest): string {
  return (request.params as { instance: string }).instance;
}

/** Errors in gym-http-api's form are `{message}`, with 400 for faults of the request. */
function replyError(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  problemHandler: ProblemHandler,
): FastifyReply {
  const counted = error instanceof InvalidUsage ? new Problem('invalid_request', error.message) : error;
  const { status, code, detail, trace_id } = problemHandler.prepare(counted, request, reply);
  if (status < HTTP_SERVER_ERROR && !KEPT_STATUSES.has(status)) reply.code(HTTP_BAD_REQUEST);
  return sendJson(reply, { message: messageOf(code, detail, request), code, trace_id });
}

function messageOf(code: ProblemCode, detail: string, request: FastifyRequest): string {
  if (NO_INSTANCE.has(code)) return `Instance_id ${instanceOf(request)} unknown: ${detail}`;
  return code === 'bad_json' ? `Request is not a valid json: ${detail}` : detail;
}

/** @throws InvalidUsage unless the body is a JSON object */
function readBody(body: unknown): JsonObject {
  if (!isObject(body)) throw new InvalidUsage('Request is not a valid json');
  return body;
}

/** @throws InvalidUsage where it is missing or empty */
function required(body: JsonObject, name: string): Json {
  const value = optional(body, name);
  if (value !== undefined) return value;
  throw new InvalidUsage(`A required request parameter '${name}' was not provided`);
}

/** Null, an empty text and an empty list count as absent. */
function optional(body: JsonObject, name: string): Json | undefined {
  const value = body[name];
  const empty = value === undefined || value === null || value === '';
  return empty || (Array.isArray(value) && value.length === 0) ? undefined : value;
}
