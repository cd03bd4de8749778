import { mock } from 'node:test';
import t, { type Test } from 'tap';
import { createRegistry } from '../../environments/registry.ts';
import type { BuildContext } from '../builder.ts';
import type { Definition } from '../definitions/definition.ts';
import { EXAMPLES } from '../examples.ts';
import { localNetwork, testService } from '../remote/service.test-data.ts';
import { ScriptPool } from '../script/pool.ts';
import { Trials } from './trials.ts';

const HELD = Symbol('held');

/** A workshop, and a definition of a service that answers nothing until the test ends. */
async function workshopOf(tap: Test): Promise<{ context: BuildContext; silent: Definition }> {
  const scripts = new ScriptPool({
    workers: 1,
    timeMs: 200,
    memoryBytes: 32 * 1024 * 1024,
    outputLength: 10_000,
    valueBytes: 10_000,
  });
  const held: (() => void)[] = [];
  tap.teardown(() => {
    for (const release of held) release();
    return scripts.close();
  });
  const service = await testService(tap, async () => {
    await new Promise<void>(resolve => held.push(resolve));
    return { body: {} };
  });
  const silent = { ...(EXAMPLES.webhook.value.definition as object), url: service.url, timeout_ms: 300_000 };
  const context = { registry: createRegistry(), scripts, network: localNetwork(tap).network };
  return { context, silent: silent as unknown as Definition };
}

t.test('a trial that takes too long is stopped', async t => {
  const { context, silent } = await workshopOf(t);
  const trials = new Trials(context, 50);
  await t.rejects(trials.tryOut('me', { envId: 'me/Silent-v0', definition: silent, owner: 'me' }), {
    code: 'check_failed',
    message: 'the check of me/Silent-v0 took more than 0.05 s',
  });
});

t.test(
  'the trial of a script has ten times as long while the machine is busy with other programs',
  async t => {
    const { context } = await workshopOf(t);
    const { definition } = EXAMPLES.script.value;
    const owned = { envId: 'me/Script-v0', definition: definition as unknown as Definition, owner: 'me' };
    t.teardown(() => mock.restoreAll());
    for (const [usedMs, turns] of [
      [0, 10],
      [1, 1],
    ]) {
      const { mock: clock } = mock.method(process, 'cpuUsage', () => ({ user: usedMs * 1000, system: 0 }));
      await t.rejects(new Trials(context, 1).tryOut('me', owned), {
        code: 'check_failed',
        message: `the check of me/Script-v0 took more than ${turns / 1000} s`,
      });
      t.equal(clock.callCount(), 2 * turns, 'it asks before and after each turn');
    }
  },
);

t.test('trials are limited for each token and for all, stopped ones that still run included', async t => {
  const { context, silent } = await workshopOf(t);
  const trials = new Trials(context, 50);
  const begin = (principal: string, index: number) =>
    trials.tryOut(principal, { envId: `me/S${index}-v0`, definition: silent, owner: principal }).then(
      () => HELD,
      error => error.code,
    );
  const first = await Promise.all(Array.from({ length: 4 }, (_, i) => begin('me', i)));
  t.same(first, new Array(4).fill('check_failed'));
  t.equal(await begin('me', 4), 'too_many_requests');
  await t.rejects(
    trials.tryOut('me', { envId: 'me/S-v0', definition: silent, owner: 'me' }),
    /4 environments of one token are being checked/,
  );
  t.same(new Set(await Promise.all([0, 1, 2, 3].map(i => begin('other', i)))), new Set(['check_failed']));
  const guests = ['third', 'fourth', 'fifth', 'sixth'];
  for (const guest of guests)
    t.equal(await begin(guest, 0), 'check_failed', 'a token that has none gets one');
  await t.rejects(
    trials.tryOut('third', { envId: 'me/S-v0', definition: silent, owner: 'third' }),
    /8 environments are being checked/,
  );
  await t.rejects(
    trials.tryOut('seventh', { envId: 'me/S-v0', definition: silent, owner: 'seventh' }),
    /12 environments are being checked/,
  );
});

t.test('a slow check of a service has a hint about its connections, unless they are set', async t => {
  const { context } = await workshopOf(t);
  const service = await testService(t, ({ path }) => ({
    body: { observation: path, reward: 0, terminated: path === '/step' },
  }));
  const definition = {
    kind: 'remote',
    protocol: 'webhook',
    url: service.url,
    title: 'One',
    instruction: 'Go.',
    action_space: { type: 'Discrete', names: ['Go', 'Stay'] },
    example_action: 'Go',
  };
  const warnings = async (slowMs: number, more: object = {}) => {
    const owned = { envId: 'me/One-v0', definition: { ...definition, ...more } as Definition, owner: 'me' };
    const { report } = await new Trials(context, undefined, slowMs).tryOut('me', owned);
    return (report.warnings ?? []).filter(warning => warning.includes('connection'));
  };
  t.match(await warnings(0), [/^the check took \d+ s: .* set "connections": 1 in its definition$/]);
  t.same(await warnings(0, { connections: 1 }), []);
  t.same(await warnings(Number.POSITIVE_INFINITY), []);
});
