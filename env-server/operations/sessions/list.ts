import type { Static } from 'typebox';
import { Type } from '../../../shared/schema/type.ts';
import { isPainted } from '../../environments/core/environment.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import { inScheduledSlices, type Sliced } from '../../environments/core/slices.ts';
import { sizeOf } from '../../sessions/limits/size.ts';
import type { ListRequest } from '../../sessions/manager.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Session as LiveSession } from '../../sessions/session.ts';
import { type Services, serverOperation } from '../operation.ts';
import { EnvId, GroupId } from '../schemas/fields.ts';
import { type Session, SessionPage } from '../schemas/session.ts';
import { MAX_OBSERVATION_BYTES, sessionView } from './views.ts';

const DEFAULT_PAGE = 100;
const MAX_PAGE = 1000;
/** Sessions looked at before others have their turn on the event loop; of those that show pictures one. */
const VIEWS_AT_A_TIME = 20;

export const list = serverOperation({
  name: 'list',
  method: 'GET',
  path: '/v1/sessions',
  status: 200,
  scope: 'play',
  tag: 'sessions',
  summary: 'List your sessions, oldest first',
  keyed: false,
  plays: true,
  query: {
    env_id: Type.Optional(EnvId),
    group_id: Type.Optional(GroupId),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
    cursor: Type.Optional(
      Type.String({ pattern: '^[0-9]{1,15}$', description: '`next_cursor` of the page before.' }),
    ),
  },
  result: SessionPage,
  handle(services, { name, scopes }, input) {
    const request = {
      envId: input.env_id,
      groupId: input.group_id,
      after: input.cursor === undefined ? 0 : Number(input.cursor),
      limit: input.limit ?? DEFAULT_PAGE,
    };
    const principal = { name, scopes };
    return chain(listed(services, principal, { ...request, limit: request.limit + 1 }), found =>
      chain(inScheduledSlices(viewsOf(found)), views => pageOf(views, request.limit)),
    );
  },
});

/** Sessions of the principal for a page, and one more where there are more. */
function listed(
  { sessions, shared }: Services,
  principal: Principal,
  request: ListRequest,
): MaybePromise<readonly LiveSession[]> {
  return shared ? shared.list(principal, request) : sessions.list(principal, request);
}

interface ListedSessions {
  readonly serial: number;
  /** Undefined where the page ends before it: what is shown takes as much as one reply may. */
  readonly session?: Session;
}

function* viewsOf(found: readonly LiveSession[]): Sliced<ListedSessions[]> {
  const listed: ListedSessions[] = [];
  let bytes = 0;
  for (const session of found) {
    if (session.closed) continue;
    const { serial } = session;
    if (bytes > MAX_OBSERVATION_BYTES) {
      listed.push({ serial });
      break;
    }
    const view = sessionView(session);
    bytes += sizeOf(view.observation);
    listed.push({ serial, session: view });
    if (isPainted(session.format) || listed.length % VIEWS_AT_A_TIME === 0) yield;
  }
  return listed;
}

function pageOf(listed: readonly ListedSessions[], limit: number): Static<typeof SessionPage> {
  const sessions: Session[] = [];
  let cursor = 0;
  for (const { serial, session } of listed) {
    if (!session || sessions.length === limit) return { sessions, next_cursor: String(cursor) };
    sessions.push(session);
    cursor = serial;
  }
  return { sessions, next_cursor: null };
}
