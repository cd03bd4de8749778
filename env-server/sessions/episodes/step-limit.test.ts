import t from 'tap';
import { createApp } from '../../app.ts';

t.test('a session has the step limit of its level, wherever it is shown', async t => {
  const app = await createApp({ logLevel: 'silent' });
  t.teardown(() => app.server.close());
  const ask = async (method: 'GET' | 'POST', url: string, payload?: object) =>
    (await app.server.inject({ method, url, payload })).json();
  const game = { env_id: 'Sudoku-v0', config: { size: 4 }, seed: 3 };
  const opened = await ask('POST', '/v1/sessions', game);
  t.ok(opened.max_episode_steps < 40, `${opened.max_episode_steps} steps`);
  const session = `/v1/sessions/${opened.session_id}`;
  t.equal((await ask('GET', session)).max_episode_steps, opened.max_episode_steps);
  t.equal((await ask('GET', `${session}/replay`)).session.max_episode_steps, opened.max_episode_steps);
  const { max_episode_steps: limit } = await ask('POST', '/v1/sessions', {
    ...game,
    wrappers: [{ name: 'time_limit', options: { max_steps: 3 } }],
  });
  t.equal(limit, 3);
  for (let n = 1; n <= opened.max_episode_steps; n++) {
    const { truncated } = await ask('POST', `${session}/step`, { action: 'nonsense' });
    t.equal(truncated, n === opened.max_episode_steps, `step ${n}`);
  }
});
