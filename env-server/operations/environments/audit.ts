import { Type } from '../../../shared/schema/type.ts';
import { chain } from '../../environments/core/maybe-promise.ts';
import { serverOperation } from '../operation.ts';
import { nullable } from '../schemas/fields.ts';

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
  status: 200,
  scope: 'admin',
  tag: 'environments',
  summary: 'The audit log: who registered, replaced or removed which environment, or tried to; newest first',
  description: 'Servers that share a store share the log. It keeps about the newest 100,000 entries.',
  keyed: false,
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
