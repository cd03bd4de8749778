import { setImmediate as nextTurn } from 'node:timers/promises';
import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { isProblem, testApp } from '../../../test/app.test-data.ts';

/**
 * Observations of 200,000 characters: a few of them make a reply that delays everyone, far below the limits on sessions
 * and steps.
 */
const DEFINITION = {
  kind: 'script',
  title: 'Large',
  instruction: 'Do it.',
  action_space: { type: 'Discrete', names: ['Do'] },
  example_action: 'Do',
  max_episode_steps: 1000,
  source: `
    function reset() { return { n: 0 }; }
    function step({ n }) { return { state: { n: n + 1 }, reward: 0, terminated: false }; }
    function observe({ n }) { return n < 60 ? 'small' : 'x'.repeat(200000); }`,
};

t.test('replies with many large observations are refused or cut before they delay everybody', async t => {
  const { ask, sessions } = await testApp(t);
  t.equal((await ask('POST', '/v1/envs', { env_id: 'a/Large-v0', definition: DEFINITION })).status, 201);
  const { body } = await ask('POST', '/v1/sessions', { env_id: 'a/Large-v0' });
  const path = `/v1/sessions/${body.session_id}`;
  const step = { op: 'step', session_id: String(body.session_id), action: 'Do' };
  const play = (steps: number) => ask('POST', '/v1/batch', { items: Array(steps).fill(step) });
  t.equal((await play(60)).status, 200);

  const refused = await ask('POST', `${path}/clone`, { count: 100 });
  isProblem(t, refused, 'body_too_large');
  t.match(refused.body.detail, /of 100 sessions take more than the 8388608 bytes .* nothing was opened/);
  t.equal(sessions.size, 1);

  for (let i = 0; i < 3; i++) t.equal((await ask('POST', `${path}/clone`, { count: 30 })).status, 201);
  const first = await ask('GET', '/v1/sessions?limit=1000');
  const listed = first.body.sessions as unknown as { session_id: string }[];
  t.ok(listed.length > 30 && listed.length < 60, `a page of ${listed.length}`);
  const seen = new Set(listed.map(({ session_id }) => session_id));
  for (let cursor = first.body.next_cursor; cursor !== null; ) {
    const page = await ask('GET', `/v1/sessions?limit=1000&cursor=${String(cursor)}`);
    for (const { session_id } of page.body.sessions as unknown as { session_id: string }[]) {
      seen.add(session_id);
    }
    cursor = page.body.next_cursor;
  }
  t.equal(seen.size, 91, 'the pages have all of them');

  t.equal((await ask('GET', `${path}/trajectory`)).status, 200);
  t.equal((await play(170)).status, 200);
  const trajectory = await ask('GET', `${path}/trajectory`);
  isProblem(t, trajectory, 'unsupported');
  t.match(trajectory.body.detail, /take more than the 33554432 bytes that a trajectory may have/);
});

/** Number of turns of the event loop until something is done. */
async function turnsUntil(work: Promise<unknown>): Promise<number> {
  let turns = 0;
  let isDone = false;
  const done = () => {
    isDone = true;
  };
  work.then(done, done);
  while (!isDone) {
    turns++;
    await nextTurn();
  }
  return turns;
}

t.test('a large group is opened, journaled and written in slices, and is one answer', async t => {
  const data = t.testdir();
  const app = await testApp(t, { data, idleTtlSeconds: 600 });
  const { ask, sessions } = app;
  const key = { 'idempotency-key': 'group' };
  const asked = { env_id: 'FrozenLake-v0', count: 4096, seed: 1 };
  const creating = ask('POST', '/v1/sessions', asked, key);
  const turns = await turnsUntil(creating);
  t.ok(turns > 5, `${turns} turns of the event loop`);
  const { status, body } = await creating;
  t.equal(status, 201);
  const members = body.sessions as unknown as JsonObject[];
  t.equal(new Set(members.map(({ session_id }) => session_id)).size, 4096);
  const { sessions: _members, ...first } = body;
  t.same(first, members[0]);
  t.equal(sessions.size, 4096);
  const again = await ask('POST', '/v1/sessions', asked, key);
  t.same(again.body, body, 'the reply is remembered under its key');

  const cloning = ask('POST', `/v1/sessions/${String(first.session_id)}/clone`, { count: 1000 });
  t.ok((await turnsUntil(cloning)) > 1);
  t.equal(((await cloning).body.sessions as unknown as JsonObject[]).length, 1000);
  t.ok(
    [...sessions.open()].every(({ recorded }) => recorded === 1),
    'each has one record in the journal',
  );
});

t.test('a server that stops while it opens a group leaves nothing of it', async t => {
  const { ask, sessions } = await testApp(t, { stepTimeoutMs: 5000 });
  const creating = ask('POST', '/v1/sessions', { env_id: 'FrozenLake-v0', count: 4096 });
  while (sessions.size === 0) await nextTurn();
  t.ok(sessions.size < 4096, `${sessions.size} were open`);
  sessions.stop();
  isProblem(t, await creating, 'draining');
  t.equal(sessions.size, 0);
  t.equal(sessions.bytes.sessions, 0);
  t.equal(sessions.bytes.used, 0);
});
