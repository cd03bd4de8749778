import t from 'tap';
import { SessionsInPlay } from './sessions-in-play.ts';

const one = '{"session_id":"s1","pending":false}';

t.test('ids that a client was told of stand for marks, the newest for all of them in turn', async t => {
  const sessions = new SessionsInPlay();
  const marked = { path: '/v1/sessions/@session:3', list: ['@session:0', 7] };
  t.same(sessions.fill(marked), { path: '/v1/sessions/nobody', list: ['nobody', 7] });
  sessions.learn(`[${one},${one.replace('s1', 's2')},${one}]`, {});
  t.same([...sessions.made], ['s1', 's2']);
  t.same(sessions.fill(marked), { path: '/v1/sessions/s2', list: ['s1', 7] });
  t.equal(sessions.untold, 0);
});

t.test('work that goes on without its reply may open as many sessions as were asked for', async t => {
  const create = { op: 'create', count: 1000 };
  const untold = (reply: string, request: unknown): number => {
    const sessions = new SessionsInPlay();
    sessions.learn(reply, request);
    return sessions.untold;
  };
  t.equal(untold(one, { frames: [create] }), 0, 'all was told');
  t.equal(untold('{"results":[{"ok":false,"pending":true}]}', { frames: [{ items: [create] }] }), 1001);
  t.equal(untold('{"code":"step_timeout"}', { body: { text: JSON.stringify(create) } }), 1001);
  t.equal(untold('{"code":"step_timeout"}', { body: { text: '{"count": 1e2}' } }), 101);
  t.equal(untold('{"code":"step_timeout"}', { op: 'step' }), 1);
});
