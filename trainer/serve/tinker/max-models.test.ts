import t from 'tap';
import type { TinkerSession } from './server.ts';
import { startTinker } from './tinker.test-data.ts';

t.setTimeout(900_000);

t.test('a key with more models than its part makes room, and one with its part keeps them', async t => {
  const { server } = await startTinker(t, { maxModels: 4 });
  const open = (session: TinkerSession, n: number) => {
    const request = server.openModel(session, n, '', { lora: server.loraOf({ rank: 1 }), seed: n }, {});
    const { request_id } = request as { request_id: string };
    return server.futures.read(request_id, session.owner, 600_000, new AbortController().signal);
  };
  const numbers = ({ models }: TinkerSession) => [...models.keys()].map(id => Number(id.split(':')[2]));
  const [first, second] = [server.createSession('one'), server.createSession('one')];
  for (let n = 0; n < 4; n++) await open(n < 2 ? first : second, n);
  server.model(`${first.id}:train:0`, 'one');
  const other = server.createSession('two');
  t.ok('model_id' in (await open(other, 0))!);
  t.same(numbers(first), [0], 'the one that was not used for longest is gone');
  t.throws(() => server.model(`${first.id}:train:1`, 'one'), {
    status: 404,
    message: /made room for another key/,
  });
  t.ok('model_id' in (await open(other, 1))!);
  t.same([numbers(first), numbers(second), numbers(other)], [[0], [3], [0, 1]]);
  t.match(await open(other, 2), { error: /4 models are open, the limit/ }, 'parts are equal');
  const third = server.createSession('three');
  t.ok('model_id' in (await open(third, 0))!);
  t.match(await open(third, 1), { error: /4 models are open/ }, 'who has one never takes one of two');
  t.ok('model_id' in (await open(server.createSession('four'), 0))!);
  t.match(
    await open(server.createSession('five'), 0),
    { error: /4 models are open/ },
    'the last one is kept',
  );
});
