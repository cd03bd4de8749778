import t from 'tap';
import { isProblem, testApp } from '../../../test/app.test-data.ts';

/** Observations of 200,000 characters: far fewer of them than sessions or steps make a reply that holds up everybody. */
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

t.test('replies with many large observations are refused or cut before they hold up everybody', async t => {
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
