import type { Static } from 'typebox';
import { Type } from '../../../shared/schema/type.ts';
import { DEFINITIONS, Definition, KINDS, PROTOCOLS } from '../../custom/definitions/definition.ts';
import type { Registered, Registrations } from '../../custom/registrations/registrations.ts';
import { withoutSecrets } from '../../custom/remote/secrets.ts';
import { type CheckReport as Report, RULES, type Rule } from '../../environments/core/checker/report.ts';
import type { AuditAction, StoredEnvironment } from '../../persistence/stored-environment.ts';
import { Problem } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import { AnyJson, nullable } from '../schemas/fields.ts';
import { compileCheck, type InputCheck } from '../validation.ts';

/** Taken as it comes and checked by {@link checkDefinition}, which names the faults of the kind that was meant instead of those of all kinds. */
export const DefinitionInput = AnyJson();

/** Schemas that the reference shows. */
export const documented = { definition: Definition };

const checks = new Map<object, InputCheck>();

/**
 * @throws Problem `invalid_request` with JSON pointers into the request
 */
function checkDefinition(given: unknown): asserts given is Definition {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw refused('/definition', 'must be an object with "kind"');
  }
  const kind = chosen(given, 'kind', KINDS);
  const schema =
    kind === 'remote' ? DEFINITIONS.remote[chosen(given, 'protocol', PROTOCOLS)] : DEFINITIONS[kind];
  let check = checks.get(schema);
  if (!check) {
    check = compileCheck(Type.Object({ definition: schema }), kind);
    checks.set(schema, check);
  }
  check({ definition: given });
}

/**
 * Checks a definition; the audit log notes one that is refused.
 * @throws Problem `invalid_request` with JSON pointers into the request
 */
export function audited(
  registrations: Registrations,
  principal: Principal,
  action: AuditAction,
  envId: string,
  given: unknown,
): Definition {
  try {
    checkDefinition(given);
    return given;
  } catch (error) {
    registrations.audit.refused({ principal, action, envId, definition: given }, error);
    throw error;
  }
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
  return new Problem('invalid_request', `${pointer}: ${detail}`, { violations: [{ pointer, detail }] });
}

export const CheckReport = Type.Object(
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
        description: 'What is odd but may be meant so, e.g. states that no episode comes to.',
      }),
    ),
  },
  { title: 'CheckReport', description: 'What an environment owes its players and does not keep.' },
);

export const Registration = Type.Object(
  {
    env_id: Type.String(),
    kind: Type.Enum([...KINDS], { type: 'string' }),
    owner: Type.String({
      description: 'Name of the token it belongs to; its owner may replace and remove it.',
    }),
    revision: Type.Integer({ description: 'Counts replacements, from 1.' }),
    registered_at: Type.String({ format: 'date-time' }),
    replaced_at: nullable(Type.String({ format: 'date-time' }), 'Last replacement.'),
    durable: Type.Boolean({
      description: 'Whether it is there after a restart: the server was started with `--data`.',
    }),
    report: CheckReport,
  },
  { title: 'Registration' },
);

export function plainReport({ warnings, ...report }: Report): Static<typeof CheckReport> {
  return { ...report, findings: [...report.findings], ...(warnings && { warnings: [...warnings] }) };
}

export function registration(
  registrations: Registrations,
  { stored, report }: Registered,
): Static<typeof Registration> {
  return {
    ...about(stored),
    durable: registrations.durable,
    report: plainReport(report),
  };
}

export const StoredDefinition = Type.Object(
  {
    env_id: Type.String(),
    kind: Registration.properties.kind,
    owner: Registration.properties.owner,
    revision: Registration.properties.revision,
    registered_at: Registration.properties.registered_at,
    replaced_at: Registration.properties.replaced_at,
    definition: Definition,
  },
  { title: 'StoredDefinition' },
);

/** The values of `headers` are secrets of the owner's service and stay with the server. */
export function storedDefinition(stored: StoredEnvironment): Static<typeof StoredDefinition> {
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
