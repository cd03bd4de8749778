import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { localNetwork, testService } from '../../../env-server/custom/remote/service.test-data.ts';
import { webhookEnvironment } from '../../../env-server/custom/remote/webhook.ts';
import { freePort } from '../../../test/free-port.test-data.ts';
import type { WaitEvent } from '../../client/retry.ts';
import { openServers } from '../../client/servers.ts';
import type { Agent } from '../agents/agent.ts';
import { describeTags } from '../described-tag.ts';
import type { Episode } from '../episode.ts';
import { serve } from '../server.test-data.ts';
import { serverProcess } from '../server-process.test-data.ts';
import { type GroupPlan, planGroups } from '../tag.ts';
import {
  alike,
  collectorOf,
  MIXTURE,
  play,
  RESPONSE,
  random,
  SAMPLING,
  TAGS,
} from './collector.test-data.ts';
import { Collector } from './collector.ts';

/** Calls `disturb` at the given turn of the collection. */
function disturbing(at: number, disturb: () => void): Agent {
  let asked = 0;
  return {
    respond(turn) {
      if (++asked === at) disturb();
      return random.respond(turn);
    },
    release() {},
  };
}

async function undisturbed(t: Test, plans: readonly GroupPlan[]): Promise<readonly Episode[]> {
  const { episodes } = await play(await collectorOf(await serve(t)), random, plans);
  return episodes;
}

t.test('the only server is killed and comes back: the same episodes, each once; then it is gone', async t => {
  const process = await serverProcess(t);
  const waits: WaitEvent[] = [];
  let back = 0;
  const servers = openServers([{ url: process.url, retry: { maxDelayMs: 100 } }], {
    onWaiting: event => waits.push(event),
    onBack: () => back++,
  });
  t.teardown(() => servers.close());
  const collector = await collectorOf(servers);
  const agent = disturbing(60, () => process.restart());
  const { episodes, dropped, metrics } = await play(collector, agent);
  t.equal(dropped.length, 0);
  t.ok(metrics['rollouter/replayed_episodes'] > 0);
  t.ok(waits.length > 0 && back > 0);
  t.ok(alike(episodes, await undisturbed(t, MIXTURE)));

  const retry = { patienceMs: 50, baseMs: 1, maxDelayMs: 10 };
  const impatient = openServers([{ url: process.url, retry }]);
  t.teardown(() => impatient.close());
  const killing = disturbing(10, () => process.kill());
  await t.rejects(
    play(await collectorOf(impatient), killing),
    { name: 'ServerUnavailable', server: process.url },
    'the collection ends with its name',
  );
});

t.test('an episode that fails because its service did is played again, and costs no run', async t => {
  const failed = new Set<unknown>();
  const service = await testService(t, ({ path, body }) => {
    // The first session of each level loses its second step.
    if (path === '/reset') return { body: { observation: `Level ${body.seed}.`, info: { success: false } } };
    if (path === '/close') return { body: {} };
    const { session_id: session, step } = body as { readonly [key: string]: unknown };
    if (step === 2 && failed.size < 3) return failed.add(session) && { status: 500, body: { detail: 'oh' } };
    return { body: { observation: `Step ${step}.`, reward: 1, terminated: step === 3 } };
  });
  const environment = webhookEnvironment(
    'Failing-v0',
    {
      kind: 'remote',
      protocol: 'webhook',
      url: service.url,
      title: 'Failing',
      instruction: 'Go.',
      action_space: { type: 'Discrete', names: ['Go'] },
      example_action: 'Go',
    },
    localNetwork(t),
  );
  const servers = await serve(t, { retry: { baseMs: 1, maxDelayMs: 10 } }, [environment]);
  const tag = { ...TAGS[0], name: 'Failing', environmentId: 'Failing-v0', maxActionsPerTurn: 1 };
  const described = await describeTags(servers, [tag]);
  const response = { ...RESPONSE, think: false };
  const collector = new Collector({ servers, tags: described, prompt: 'chat', response, concurrency: 4 });
  const plans = planGroups({ tags: [{ tag: 'Failing', groups: 4 }], groupSize: 1, firstSeed: 1 });
  const { episodes, dropped, metrics } = await play(collector, random, plans);
  t.equal(failed.size, 3);
  t.same([episodes.length, dropped.length], [4, 0]);
  t.same(
    episodes.map(({ turns }) => turns.length),
    [3, 3, 3, 3],
  );
  t.equal(metrics['rollouter/replayed_episodes'], 3);
});

t.test('a service that stays away does not block other environments, and is taken up again', async t => {
  const port = await freePort();
  const service = createServer((request, response) => {
    const terminated = request.url === '/step';
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ observation: 'Here.', reward: 1, terminated }));
  });
  t.teardown(() => service.close());
  const environment = webhookEnvironment(
    'Away-v0',
    {
      kind: 'remote',
      protocol: 'webhook',
      url: `http://127.0.0.1:${port}`,
      title: 'Away',
      instruction: 'Go.',
      action_space: { type: 'Discrete', names: ['Go'] },
      example_action: 'Go',
    },
    localNetwork(t),
  );
  const servers = await serve(t, { retry: { baseMs: 1, maxDelayMs: 20, patienceMs: 5000 } }, [environment]);
  const away = { ...TAGS[0], name: 'Away', environmentId: 'Away-v0', maxActionsPerTurn: 1 };
  const described = await describeTags(servers, [TAGS[0], away]);
  const response = { ...RESPONSE, think: false };
  const collector = new Collector({
    ...{ servers, tags: described, prompt: 'chat', response, concurrency: 4, outageMs: 100 },
  });
  const groups = (...tags: string[]) =>
    planGroups({ tags: tags.map(tag => ({ tag, groups: 8 })), groupSize: 1, firstSeed: 1 });
  const collected = (plans: readonly GroupPlan[]) =>
    collector.collect(plans, { agent: random, sampling: SAMPLING, samplingSeed: 3, isPartial: true });

  const began = performance.now();
  const partial = await collected(groups('Away', 'Lake'));
  t.ok(performance.now() - began < 4000, 'sooner than the patience');
  t.same(new Set(partial.episodes.map(({ tag }) => tag)), new Set(['Lake']));
  t.equal(partial.episodes.length, 8);
  t.equal(partial.dropped.length, 8);
  t.match(partial.dropped[0].error, { name: 'ServerUnavailable', message: /the service .*Away-v0/ });
  t.notOk(servers.servers[0].away, 'the server answers');

  setTimeout(() => service.listen(port, '127.0.0.1'), 200);
  const { episodes, dropped } = await collected(groups('Away'));
  t.same([episodes.length, dropped.length], [8, 0], 'alone it is waited for, and taken up again');
});

t.test('a server that is gone for good: its episodes continue elsewhere', async t => {
  const gone = await serverProcess(t);
  const stays = { url: (await serve(t)).servers[0].name };
  const servers = openServers(
    [gone, stays].map(({ url }) => ({ url, retry: { patienceMs: 50, baseMs: 1, maxDelayMs: 10 } })),
  );
  t.teardown(() => servers.close());
  const collector = await collectorOf(servers);
  const agent = disturbing(40, () => gone.kill());
  const { episodes, dropped } = await play(collector, agent);
  t.equal(dropped.length, 0);
  t.ok(alike(episodes, await undisturbed(t, MIXTURE)));
  t.ok(episodes.some(episode => episode.server === stays.url));
});

t.test('a server that returns gets work again', async t => {
  const [first, second] = [await serverProcess(t), await serverProcess(t)];
  const retry = { patienceMs: 600_000, baseMs: 10, maxDelayMs: 100, probeMs: 100 };
  const servers = openServers(
    [first, second].map(({ url }) => ({ url, retry })),
    {},
    50,
  );
  t.teardown(() => servers.close());
  const collector = await collectorOf(servers);
  const playedAt = (episodes: readonly Episode[]) => new Set(episodes.map(({ server }) => server));
  await first.kill();
  const without = await play(collector);
  t.same(playedAt(without.episodes), new Set([second.url]));
  await first.restart();
  while (servers.servers.some(server => server.away)) await sleep(10);
  const both = await play(collector);
  t.same(playedAt(both.episodes), new Set([first.url, second.url]));

  await first.kill();
  const agent = disturbing(40, () => {
    void second.kill();
    void first.restart();
  });
  const { episodes, dropped } = await play(collector, agent);
  t.equal(dropped.length, 0, 'with all away they are waited for');
  t.ok(alike(episodes, without.episodes));
});
