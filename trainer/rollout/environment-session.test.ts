import t from 'tap';
import { EnvironmentSession } from './environment-session.ts';
import { serve } from './server.test-data.ts';

t.test('act takes an action that the server rejects as invalid and continues after it', async t => {
  const servers = await serve(t);
  const spec = { environmentId: 'FrozenLake-v0', groupName: 'test', config: {}, seed: 1 };
  const [session, plain] = await EnvironmentSession.openGroup(servers, spec, 2);
  t.teardown(() => Promise.all([session.close(), plain.close()]));
  const results = await session.act([{ not: 'an action' }, 'Left', [1], [2], 'Left']);
  t.same(
    results.map(({ step, info }) => [step, info.action_is_valid]),
    [
      [0, false],
      [1, true],
      [1, false],
      [1, false],
      [2, true],
    ],
  );
  t.same(session.actions, ['Left', 'Left'], 'a replay leaves rejected actions out');
  await plain.act(['Left', 'Left']);
  t.equal(session.observation, plain.observation);
  t.same(
    (await session.act([null])).map(({ observation, reward }) => ({ observation, reward })),
    [{ observation: plain.observation, reward: 0 }],
  );
});
