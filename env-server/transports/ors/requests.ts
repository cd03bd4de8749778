import type { FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { attempted, type JsonObject } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import {
  Bag,
  Config,
  DynamicsSeed,
  EnvId,
  Format,
  Options,
  RequestKey,
  Seed,
  Wrappers,
} from '../../operations/schemas/fields.ts';
import { compileCheck } from '../../operations/validation.ts';
import { Problem } from '../../problems.ts';
import { envIdOf } from '../addressing.ts';

/** Header with the episode of a request. */
const SESSION_HEADER = 'x-session-id';
/** Header with the environment, for clients with paths that lack it. */
const DEPLOYMENT_HEADER = 'x-deployment';

/** Session ids are chosen by the server or by the client. */
const SESSION_NAME = /^[\w.:-]{1,100}$/;
const ENV_ID = /-v\d+$/;
const BASIC = /^basic (.+)$/i;

const ORS_PATH =
  /^(?:\/compat\/ors)?(?:\/[^?]+-v\d+)?\/(?:health|list_environments|create_session|create|ping|delete|delete_session|tools|splits|tasks|num_tasks|task|task_range|task_tools|prompt|call)(?:\?|$)/;

/** True if an address belongs to this transport. */
export const isOrsPath = (url: string): boolean => ORS_PATH.test(url);

const SplitName = Type.String({ maxLength: 128 });
const Index = Type.Integer({ minimum: -1_000_000_000, maximum: 1_000_000_000 });

/** A task: the start of an episode, in the fields of `POST /v1/sessions`. */
export const TaskSpec = closed({
  seed: Type.Optional(Seed),
  dynamics_seed: Type.Optional(DynamicsSeed),
  config: Type.Optional(Config),
  options: Type.Optional(Options),
  wrappers: Type.Optional(Wrappers),
  observation_format: Type.Optional(Format),
});
export type TaskSpec = Static<typeof TaskSpec>;

/** Clients write omitted fields as null. */
const orNull = <S extends Parameters<typeof Type.Optional>[0]>(schema: S) =>
  Type.Optional(Type.Union([schema, Type.Null()]));

const BODIES = {
  tasks: closed({ split: SplitName }),
  task: closed({ split: SplitName, index: Index }),
  task_range: closed({ split: SplitName, start: orNull(Index), stop: orNull(Index) }),
  create: closed({
    env_name: orNull(EnvId),
    task_spec: orNull(TaskSpec),
    split: orNull(SplitName),
    index: orNull(Index),
    secrets: orNull(Bag),
  }),
  call: closed({
    name: Type.String({ maxLength: 128 }),
    input: Bag,
    task_id: orNull(RequestKey),
  }),
};
type Bodies = { readonly [route in keyof typeof BODIES]: Static<(typeof BODIES)[route]> };

const CHECKS = Object.fromEntries(
  Object.entries(BODIES).map(([route, schema]) => [route, compileCheck(schema, route)]),
);

/**
 * The body of a request.
 * @throws Problem `invalid_request`
 */
export function readBody<Route extends keyof Bodies>(route: Route, { body }: FastifyRequest): Bodies[Route] {
  CHECKS[route](body ?? {});
  return (body ?? {}) as Bodies[Route];
}

/**
 * The session that a request names.
 * @throws Problem `bad_request`
 */
export function sessionNameOf({ headers }: FastifyRequest): string {
  const name = headers[SESSION_HEADER];
  if (typeof name !== 'string' || name.trim() === '') {
    throw new Problem('bad_request', 'the header X-Session-ID is required: POST create_session gives one');
  }
  if (SESSION_NAME.test(name.trim())) return name.trim();
  throw new Problem(
    'bad_request',
    'the header X-Session-ID must have 1 to 100 letters, digits, and characters of _ . : -',
  );
}

/**
 * The environment of a request: from its path, then from `X-Deployment`, then from the user name of the address.
 * @throws Problem `bad_request` where none is named
 */
export function envNameOf(request: FastifyRequest): string {
  const named = envNameOfPath(request) ?? defaultEnvName(request);
  if (named !== undefined) return named;
  throw new Problem(
    'bad_request',
    'no environment is named: write it into the path (/FrozenLake-v0/tools), the header X-Deployment, or the address (http://FrozenLake-v0:token@host)',
  );
}

/** The environment that the path names. */
export function envNameOfPath(request: FastifyRequest): string | undefined {
  return 'name' in (request.params as object) ? envIdOf(request) : undefined;
}

/** The environment for clients with paths that name none. */
export function defaultEnvName({ headers }: FastifyRequest): string | undefined {
  const deployment = headers[DEPLOYMENT_HEADER];
  if (typeof deployment === 'string') return deployment;
  const basic = BASIC.exec(headers.authorization ?? '');
  const [user] = basic ? Buffer.from(basic[1], 'base64').toString().split(':', 1) : [''];
  return ENV_ID.test(user) ? attempted(() => decodeURIComponent(user)) : undefined;
}

/** A task without the omitted fields. */
export function plainTask(spec: TaskSpec): JsonObject {
  return Object.fromEntries(Object.entries(spec).filter(([, value]) => value !== null)) as JsonObject;
}
