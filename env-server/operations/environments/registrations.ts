import type { Static } from 'typebox';
import { isObject } from '../../../shared/json.ts';
import { remembered } from '../../../shared/remembered.ts';
import { Type } from '../../../shared/schema/type.ts';
import { DEFINITIONS, Definition, KINDS, PROTOCOLS } from '../../custom/definitions/definition.ts';
import { EXAMPLES } from '../../custom/examples.ts';
import type { Registered, Registrations } from '../../custom/registrations/registrations.ts';
import { withoutSecrets } from '../../custom/remote/secrets.ts';
import { RULES, type Rule } from '../../environments/core/checker/play.ts';
import { chain } from '../../environments/core/maybe-promise.ts';
import type { StoredEnvironment } from '../../persistence/environment-rows.ts';
import { invalidRequest, type Problem } from '../../problems.ts';
import { serverOperation } from '../operation.ts';
import { AnyJson, EnvId, nullable } from '../schemas/fields.ts';
import { compileCheck, type InputCheck } from '../validation.ts';

const DEFAULT_PAGE = 100;
const MAX_PAGE = 1000;

const AuditEntry = Type.Object(
  {
    at: Type.String({ format: 'date-time' }),
    principal: Type.String({ description: 'Name of the token.' }),
    action: Type.Enum(['register', 'replace', 'remove'], { type: 'string' }),
    env_id: Type.String(),
    kind: Type.String({ description: 'Kind of the definition as it was sent; empty where there was none.' }),
    sha256: Type.String({
      description: 'Hash of the definition without the values of headers; empty where there was none.',
    }),
    outcome: Type.String({ description: '`accepted`, or the code of the problem.' }),
  },
  { title: 'AuditEntry' },
);

const AuditPage = Type.Object(
  {
    entries: Type.Array(AuditEntry),
    next_cursor: nullable(Type.String(), 'Null on the last page.'),
  },
  { title: 'AuditPage' },
);

export const listAudit = serverOperation({
  name: 'list_audit',
  method: 'GET',
  path: '/v1/audit',
  scope: 'admin',
  summary: 'The audit log: who registered, replaced or removed which environment, or tried to; newest first',
  description: 'Servers that share a store share the log. It keeps about the newest 100,000 entries.',
  problems: ['storage_failed'],
  query: {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
    cursor: Type.Optional(
      Type.String({
        pattern: '^[0-9]{1,15}(-[0-9]{1,15})?$',
        description: '`next_cursor` of the page before.',
      }),
    ),
  },
  result: AuditPage,
  handle: ({ services: { registrations }, input: { limit = DEFAULT_PAGE, cursor } }) =>
    chain(registrations.audit.page(limit, cursor), ({ entries, next }) => ({
      entries: entries.map(({ at, envId, ...entry }) => ({
        at: new Date(at).toISOString(),
        ...entry,
        env_id: envId,
      })),
      next_cursor: next ?? null,
    })),
});

/**
 * Any JSON; {@link checkDefinition} checks it and names the faults of the intended kind instead of those of every kind.
 */
const DefinitionInput = AnyJson();

/** Schemas shown in the reference. */
const documented = { definition: Definition };

const CheckReport = Type.Object(
  {
    env_id: Type.String(),
    passed: Type.Boolean({ description: 'Nothing was found.' }),
    configurations: Type.Integer({ description: 'Configurations played: the default and every preset.' }),
    episodes: Type.Integer(),
    steps: Type.Integer(),
    findings: Type.Array(
      Type.Object({
        rule: Type.Enum(Object.keys(RULES) as Rule[], { type: 'string' }),
        message: Type.String(),
        where: Type.Optional(Type.String({ description: 'Configuration, seed and step that show it.' })),
      }),
    ),
    warnings: Type.Optional(
      Type.Array(Type.String(), {
        description: 'Odd but allowed properties, e.g. states that no episode reaches.',
      }),
    ),
  },
  { title: 'CheckReport', description: 'Rules of the environment contract that an environment breaks.' },
);

const registered = {
  env_id: Type.String(),
  kind: Type.Enum([...KINDS], { type: 'string' }),
  owner: Type.String({
    description: 'Name of the token it belongs to; its owner may replace and remove it.',
  }),
  revision: Type.Integer({ description: 'Counts replacements, from 1.' }),
  registered_at: Type.String({ format: 'date-time' }),
  replaced_at: nullable(Type.String({ format: 'date-time' }), 'Last replacement.'),
};

const Registration = Type.Object(
  {
    ...registered,
    durable: Type.Boolean({
      description: 'It survives a restart, because the server keeps it with `--data` or `--store`.',
    }),
    report: CheckReport,
  },
  { title: 'Registration' },
);

const StoredDefinition = Type.Object(
  { ...registered, definition: Definition },
  { title: 'StoredDefinition' },
);

export const register = serverOperation({
  name: 'register',
  method: 'POST',
  path: '/v1/envs',
  status: 201,
  scope: 'register',
  summary: 'Register an environment of your own',
  description:
    'The environment is played before it is accepted: it must reset and step, keep to its spaces, and give the same episode for the same seed. docs/how-to/custom-environments.md walks through every kind.',
  keyed: true,
  plays: true,
  audited: 'register',
  problems: [
    'unknown_environment',
    'environment_exists',
    'builtin_environment',
    'environment_in_use',
    'check_failed',
    'too_many_environments',
  ],
  body: { env_id: EnvId, definition: DefinitionInput },
  documented,
  examples: EXAMPLES,
  result: Registration,
  async handle({ services: { registrations }, request: { principal }, input: { env_id, definition } }) {
    const accepted = registrations.register(principal, env_id, definition, checkDefinition);
    return registration(registrations, await accepted);
  },
});

export const replace = serverOperation({
  name: 'replace',
  method: 'PUT',
  path: '/v1/envs/{env_id}',
  scope: 'register',
  summary: 'Replace an environment of your own',
  description:
    'Checked like a registration. Open sessions continue with the old definition. To keep results comparable, register a new version instead.',
  keyed: true,
  plays: true,
  audited: 'replace',
  problems: [
    'unknown_environment',
    'builtin_environment',
    'environment_in_use',
    'environment_exists',
    'check_failed',
  ],
  params: { env_id: EnvId },
  body: { definition: DefinitionInput },
  documented,
  result: Registration,
  async handle({ services: { registrations }, request: { principal }, input: { env_id, definition } }) {
    const accepted = registrations.replace(principal, env_id, definition, checkDefinition);
    return registration(registrations, await accepted);
  },
});

export const remove = serverOperation({
  name: 'remove',
  method: 'DELETE',
  path: '/v1/envs/{env_id}',
  status: 204,
  scope: 'register',
  summary: 'Remove an environment of your own',
  description:
    'Refused with `environment_in_use` while sessions play it or its owner has environments composed from it. Environments that others composed from it can no longer be played.',
  audited: 'remove',
  problems: ['unknown_environment', 'builtin_environment', 'environment_in_use', 'step_timeout'],
  params: { env_id: EnvId },
  result: Type.Null(),
  async handle({ services, request, input }) {
    await services.registrations.remove(request.principal, input.env_id);
    return null;
  },
});

export const checkOperation = serverOperation({
  name: 'check',
  method: 'POST',
  path: '/v1/envs/{env_id}/check',
  scope: 'register',
  summary: 'Check whether an environment keeps its contract',
  description: 'Plays episodes with valid and invalid actions and reports findings.',
  plays: true,
  problems: ['unknown_environment'],
  params: { env_id: EnvId },
  result: CheckReport,
  async handle({ services, request, input }) {
    return services.registrations.check(request.principal, input.env_id);
  },
});

export const getDefinition = serverOperation({
  name: 'get_definition',
  method: 'GET',
  path: '/v1/envs/{env_id}/definition',
  scope: 'register',
  summary: 'The definition of an environment of your own',
  description: 'As registered, without the values of `headers`.',
  revalidated: true,
  problems: ['unknown_environment', 'builtin_environment'],
  params: { env_id: EnvId },
  result: StoredDefinition,
  handle: ({ services, request, input }) =>
    storedDefinition(services.registrations.owned(request.principal, input.env_id)),
});

const checks = new Map<object, InputCheck>();

/**
 * @throws Problem `invalid_request` with JSON pointers into the request
 */
function checkDefinition(given: unknown): asserts given is Definition {
  if (!isObject(given)) {
    throw refused('/definition', 'must be an object with "kind"');
  }
  const kind = chosen(given, 'kind', KINDS);
  const schema =
    kind === 'remote' ? DEFINITIONS.remote[chosen(given, 'protocol', PROTOCOLS)] : DEFINITIONS[kind];
  const check = remembered(checks, schema, () => compileCheck(Type.Object({ definition: schema }), kind));
  check({ definition: given });
}

function chosen<T extends string>(given: object, key: string, choices: readonly T[]): T {
  const value = (given as { [key: string]: unknown })[key];
  const found = choices.find(choice => choice === value);
  if (found === undefined) {
    throw refused(`/definition/${key}`, `must be one of ${choices.join(', ')}, got ${JSON.stringify(value)}`);
  }
  return found;
}

function refused(pointer: string, detail: string): Problem {
  return invalidRequest(pointer, detail, `${pointer}: ${detail}`);
}

function registration(
  registrations: Registrations,
  { stored, report }: Registered,
): Static<typeof Registration> {
  return { ...about(stored), durable: registrations.durable, report };
}

/** Values of `headers` are secrets of the owner's service and never leave the server. */
function storedDefinition(stored: StoredEnvironment): Static<typeof StoredDefinition> {
  const definition = stored.definition as unknown as Definition;
  return { ...about(stored), definition: withoutSecrets(definition) };
}

function about({ envId, kind, owner, revision, registeredAt, replacedAt }: StoredEnvironment) {
  return {
    env_id: envId,
    kind: kind as Definition['kind'],
    owner,
    revision,
    registered_at: new Date(registeredAt).toISOString(),
    replaced_at: replacedAt === null ? null : new Date(replacedAt).toISOString(),
  };
}
