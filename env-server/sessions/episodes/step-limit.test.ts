import t, { type Test } from 'tap';
import { silentApp } from '../../../test/app.test-data.ts';

async function asking(t: Test) {
  const app = await silentApp(t);
  const ask = async (...request: Parameters<typeof app.ask>) => (await app.ask(...request)).body;
  return { app, ask };
}

t.test('a session has the step limit of its level, wherever it is shown', async t => {
  const { ask } = await asking(t);
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
    const { truncated, info } = await ask('POST', `${session}/step`, { action: 'nonsense' });
    t.equal(truncated, n === opened.max_episode_steps, `step ${n}`);
    t.equal(info.ended_by, truncated ? 'time_limit' : undefined);
  }
});

t.test('the step limit is the end of an episode that nothing else ends, in replays too', async t => {
  const { ask, app } = await asking(t);
  const lake = { env_id: 'FrozenLake-v0', config: { success_rate: 1, max_steps: 2 } };
  const play = async (actions: readonly string[]) => {
    const { session_id } = await ask('POST', '/v1/sessions', {
      ...lake,
      options: { layout: ['SFG', 'FHF'] },
    });
    const steps = [];
    for (const action of actions)
      steps.push(await ask('POST', `/v1/sessions/${session_id}/step`, { action }));
    const url = `/v1/sessions/${session_id}/trajectory`;
    const lines = (await app.server.inject(url)).body.trim().split('\n');
    const kept = JSON.parse(lines.at(-1)!).info;
    return { ends: steps.map(({ info }) => info.ended_by), last: steps.at(-1), kept };
  };
  const limit = await play(['Up', 'Up']);
  t.same(limit.ends, [undefined, 'time_limit']);
  t.match(limit.last, { terminated: false, truncated: true });
  t.equal(limit.kept.ended_by, 'time_limit');
  const won = await play(['Right', 'Right']);
  t.same(won.ends, [undefined, 'goal'], 'the goal at the last step is not a time limit');
  t.match(won.last, { terminated: true, truncated: false });
  t.same((await play(['Right', 'Down'])).ends, [undefined, 'hole']);
  const document = await ask('GET', '/v1/envs/FrozenLake-v0');
  t.same(document.ends, {
    goal: 'Reached the goal',
    hole: 'Fell into a hole',
    time_limit: 'Reached the step limit',
  });
});
