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

t.test('an episode that is lost in its course is reported with its cause and played again', async t => {
  const lost: string[] = [];
  const servers = Object.assign(await serve(t), {
    onReplay: (tag: string, error: Error) => lost.push(`${tag}: ${error.message}`),
  });
  const spec = { environmentId: 'FrozenLake-v0', tag: 'Lake', groupName: 'test', config: {}, seed: 1 };
  const [session] = await EnvironmentSession.openGroup(servers, spec, 1);
  t.teardown(() => session.close());
  await session.act(['Left']);
  const { server, sessionId } = session.handle;
  await server.batched('close', { session_id: sessionId });
  t.match(await session.act(['Left']), [{ step: 2 }]);
  t.equal(lost.length, 1);
  t.match(lost[0], /^Lake: .*answered (step|batch_step)/);
});
