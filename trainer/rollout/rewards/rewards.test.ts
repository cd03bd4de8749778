import { join } from 'node:path';
import type { Test } from 'tap';
import t from 'tap';
import { serveHttp } from '../../../test/local-server.test-data.ts';
import type { Episode } from '../episode.ts';
import { FileReward, HttpReward, withHookRewards } from './reward-hook.ts';

/** An episode of two turns that were rewarded with 1 and 2. */
const EPISODE = {
  environmentId: 'FrozenLake-v0',
  tag: 'Lake',
  seed: 7,
  success: true,
  turns: [1, 2].map(reward => ({
    state: 'P_',
    rawResponse: 'Up',
    actions: ['Up'],
    reward,
    penalty: -0.5,
    info: {},
  })),
} as unknown as Episode;

const rewardsOf = ({ turns }: Episode) => turns.map(({ reward }) => reward);

function fileHook(t: Test, code: string, over: Partial<ConstructorParameters<typeof FileReward>[0]> = {}) {
  const folder = t.testdir({ 'hook.ts': code });
  const settings = { mode: 'add' as const, timeoutMs: 60_000, memoryMb: 64, ...over };
  const hook = new FileReward({ ...settings, file: join(folder, 'hook.ts') });
  t.teardown(() => hook.close());
  return hook;
}

t.test('a file rewards the last turn, or each turn, in addition or instead', async t => {
  const last = fileHook(
    t,
    'export const reward = (episode: { seed: number }) => ({ reward: episode.seed });',
  );
  t.same(rewardsOf(await withHookRewards(EPISODE, last)), [1, 9]);
  const each =
    'export async function reward({ turns }) { return { rewards: turns.map((_, i) => 0.25 * i) }; }';
  t.same(rewardsOf(await withHookRewards(EPISODE, fileHook(t, each, { mode: 'replace' }))), [0, 0.25]);
  t.same(rewardsOf(EPISODE), [1, 2], 'the episode itself stays as it was');
});

t.test('a file that does not exist is named before an episode is played', async t => {
  const settings = { mode: 'add' as const, timeoutMs: 60_000, memoryMb: 64 };
  t.throws(() => new FileReward({ ...settings, file: 'nowhere.ts' }), /there is no file .*\/nowhere\.ts/);
});

t.test('a fault in a reward file costs its episode and names the file', async t => {
  const wrong = async (code: string, message: RegExp) =>
    t.rejects(withHookRewards(EPISODE, fileHook(t, code)), message);
  await wrong(
    'export const reward = () => { throw new Error("no idea"); };',
    /rollout\.reward: .*hook\.ts failed: Error: no idea/,
  );
  await wrong('export const other = 1;', /hook\.ts failed: .*exports no function `reward`/);
  await wrong(
    'export const reward = () => ({ rewards: [1] });',
    /said \{"rewards":\[1\]\}; it must say .*\[2 numbers\]/,
  );
  await wrong('export const reward = () => ({ reward: NaN });', /it must say \{"reward": number\}/);
  await wrong('this is not a program', /hook\.ts failed: /);
});

t.test('a loop without end is ended, and the next episode is rewarded', async t => {
  const code = 'export const reward = ({ seed }) => { while (seed === 7) {} return { reward: 1 }; };';
  const hook = fileHook(t, code, { timeoutMs: 500 });
  const [stuck, next] = await Promise.allSettled([
    withHookRewards(EPISODE, hook),
    withHookRewards({ ...EPISODE, seed: 8 }, hook),
  ]);
  t.match((stuck as PromiseRejectedResult).reason, /hook\.ts took more than 0.5 s for an episode/);
  t.same(rewardsOf((next as PromiseFulfilledResult<Episode>).value), [1, 3]);
});

t.test('a thread that ends by itself costs the episode at hand, at once, and no other', async t => {
  const code =
    'export const reward = ({ seed }) => { if (seed === 7) process.exit(3); return { reward: 1 }; };';
  const hook = fileHook(t, code);
  const [ended, next] = await Promise.allSettled([
    withHookRewards(EPISODE, hook),
    withHookRewards({ ...EPISODE, seed: 8 }, hook),
  ]);
  t.match((ended as PromiseRejectedResult).reason, /hook\.ts ended its thread with code 3/);
  t.same(rewardsOf((next as PromiseFulfilledResult<Episode>).value), [1, 3]);
});

t.test('a service rewards by HTTP, within its bytes and its time', async t => {
  const asked: unknown[] = [];
  const { url } = await serveHttp(t, (request, reply, body) => {
    asked.push([request.headers.authorization, JSON.parse(body).turns.length]);
    if (request.url === '/late') return;
    if (request.url === '/wrong') reply.statusCode = 503;
    reply.end(request.url === '/long' ? `{"reward": 1${' '.repeat(4096)}}` : '{"reward": 0.5}');
  });
  const hook = (path: string, timeoutMs = 60_000) =>
    new HttpReward({
      url: url + path,
      mode: 'add',
      timeoutMs,
      maxBytes: 1024,
      token: 'secret',
    });
  t.same(rewardsOf(await withHookRewards(EPISODE, hook('/'))), [1, 2.5]);
  t.same(asked, [['Bearer secret', 2]]);
  await t.rejects(
    withHookRewards(EPISODE, hook('/wrong')),
    /127\.0\.0\.1:\d+\/wrong answered with status 503/,
  );
  await t.rejects(withHookRewards(EPISODE, hook('/long')), /more than 1024 bytes/);
  await t.rejects(withHookRewards(EPISODE, hook('/late', 300)), /took more than 0\.3 s/);
});
