import { Type } from 'typebox';
import { serverOperation } from './operation.ts';
import { EnvId, GroupId, SessionPage } from './schemas.ts';

const DEFAULT_PAGE = 100;
const LARGEST_PAGE = 1000;

import { sessionView } from './views.ts';

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
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: LARGEST_PAGE, default: DEFAULT_PAGE })),
    cursor: Type.Optional(
      Type.String({ pattern: '^[0-9]{1,15}$', description: '`next_cursor` of the page before.' }),
    ),
  },
  result: SessionPage,
  handle({ sessions }, principal, input) {
    const page = sessions.list(principal, {
      envId: input.env_id,
      groupId: input.group_id,
      after: input.cursor === undefined ? 0 : Number(input.cursor),
      limit: input.limit ?? DEFAULT_PAGE,
    });
    return {
      sessions: page.sessions.map(sessionView),
      next_cursor: page.next === null ? null : String(page.next),
    };
  },
});
