import t, { type Test } from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { silentApp } from '../../test/app.test-data.ts';
import { testRegistry } from '../../test/environments.test-data.ts';
import type { Settings } from '../config/settings.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import { Problem } from '../problems.ts';

/** Objects outside an environment's states are released once, and a failed release affects no other session. */

const ENV_ID = 'test/Elsewhere-v0';

type State = { readonly episode: number; readonly text: string };

/** An environment over a service with episodes that are open until they are released. */
function elsewhere() {
  const service = {
    /** Episodes that were begun and not released. */
    open: new Set<number>(),
    /** Number of episodes that were released twice. */
    again: 0,
    begun: 0,
    /** Called for each reset; what it throws is what the reset throws. */
    onReset: async (_episode: number): Promise<void> => undefined,
    /** Called for each release after it is noted. */
    onDispose: (): void | Promise<void> => undefined,
    length: 10,
  };
  const model = testRegistry().find('test/Held-v0')!;
  const environment = {
    ...model,
    spec: { ...model.spec, id: ENV_ID },
    async reset(): Promise<State> {
      const episode = ++service.begun;
      await service.onReset(episode);
      service.open.add(episode);
      return { episode, text: 'x'.repeat(service.length) };
    },
    step: async (state: State) => ({
      state,
      reward: 0,
      terminated: true,
      info: { success: false, action_is_valid: true, action_is_effective: true },
    }),
    observe: ({ text }: State) => text,
    dispose({ episode }: State) {
      if (!service.open.delete(episode)) service.again++;
      return service.onDispose();
    },
  } as unknown as AnyEnvironment;
  return { service, environment };
}

async function serving(t: Test, settings: Partial<Settings> = {}) {
  const { service, environment } = elsewhere();
  const registry = testRegistry();
  registry.register(environment);
  const app = await silentApp(t, settings, { registry });
  const { ask } = app;
  const create = (more: JsonObject = {}) => ask('POST', '/v1/sessions', { env_id: ENV_ID, ...more });
  const open = async (more: JsonObject = {}) => String((await create(more)).body.session_id);
  const faults = async () => {
    const { text } = await ask('GET', '/metrics');
    const line = new RegExp(`^ragen_environment_faults_total\\{env_id="${ENV_ID}"\\} (\\d+)$`, 'm');
    return Number(line.exec(text)?.[1]);
  };
  return { app, service, ask, create, open, faults };
}

/** Holds a call until it is let go. */
function gate() {
  let pass = (): void => undefined;
  let arrive = (): void => undefined;
  const arrived = new Promise<void>(resolve => {
    arrive = resolve;
  });
  const passed = new Promise<void>(resolve => {
    pass = resolve;
  });
  const wait = () => {
    arrive();
    return passed;
  };
  return { wait, arrived, pass: () => pass() };
}

const FAILURES: { readonly [how: string]: () => void | Promise<void> } = {
  'throws at once': () => {
    throw new Error('it cannot be closed now');
  },
  'fails later': () => Promise.reject(new Error('it cannot be closed now')),
};

t.test('an environment that fails to release a state counts a fault, and the server continues', async t => {
  for (const [how, onDispose] of Object.entries(FAILURES)) {
    const { app, service, ask, create, open, faults } = await serving(t, { maxBytesPerSession: 60_000 });
    const bystander = (await ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' })).body.session_id;
    const id = await open();
    service.onDispose = onDispose;
    service.length = 100_000;
    t.match(await create(), { status: 507, body: { code: 'session_budget_exceeded' } }, how);
    t.equal(await faults(), 1, 'of a session that is too large');
    t.match(await ask('POST', `/v1/sessions/${id}/reset`, {}), { body: { code: 'session_budget_exceeded' } });
    t.equal(await faults(), 2, 'of an episode that is too large');
    service.length = 10;
    t.match(await ask('POST', `/v1/sessions/${id}/reset`, {}), { status: 200 });
    t.equal(await faults(), 3, 'of the episode before a reset');
    t.equal((await ask('DELETE', `/v1/sessions/${id}`)).status, 204);
    t.equal(await faults(), 4, 'of a session that is closed');
    t.equal((await ask('GET', `/v1/sessions/${bystander}`)).status, 200);
    t.equal(app.sessions.size, 1);
    t.equal(service.open.size, 0);
  }
});

t.test('of a group of which one cannot begin, all others are released', async t => {
  const { app, service, create } = await serving(t);
  service.onReset = async episode => {
    if (episode === 3) throw new Problem('remote_unavailable', 'it is full');
  };
  t.match(await create({ count: 8 }), { body: { code: 'remote_unavailable' } });
  t.equal(service.begun, 8);
  t.equal(service.open.size, 0);
  t.equal(app.sessions.size, 0);
  t.match(await create({ count: 8 }), { status: 201 }, 'it took no place');
  t.equal(service.open.size, 8);
});

t.test('of a group that begins while the server stops, all are released', async t => {
  const { app, service, create } = await serving(t);
  const late = gate();
  service.onReset = episode => (episode === 4 ? late.wait() : Promise.resolve());
  const created = create({ count: 4 });
  await late.arrived;
  app.sessions.stop();
  late.pass();
  t.match(await created, { body: { code: 'draining' } });
  t.equal(service.begun, 4);
  t.equal(service.open.size, 0);
});

t.test('of a large group that is opened while the server stops, all are released', async t => {
  const { app, service, create } = await serving(t);
  const add = app.sessions.add.bind(app.sessions);
  app.sessions.add = session => {
    add(session);
    if (app.sessions.size === 40) app.sessions.stop();
  };
  t.match(await create({ count: 100 }), { body: { code: 'draining' } });
  t.equal(service.begun, 100);
  t.equal(service.open.size, 0);
  t.equal(service.again, 0);
});

t.test('a reset that is in progress when its session is closed leaves no episode behind', async t => {
  const { service, ask, open } = await serving(t);
  const id = await open();
  const late = gate();
  service.onReset = late.wait;
  const reset = ask('POST', `/v1/sessions/${id}/reset`, {});
  await late.arrived;
  t.equal((await ask('DELETE', `/v1/sessions/${id}`)).status, 204);
  late.pass();
  t.match(await reset, { status: 410, body: { code: 'session_closed' } });
  t.equal(service.begun, 2);
  t.equal(service.open.size, 0);
});

t.test(
  'an automatic reset that is in progress when its session is closed leaves no episode behind',
  async t => {
    const { service, ask, open } = await serving(t);
    const id = await open({ wrappers: [{ name: 'auto_reset' }] });
    const late = gate();
    service.onReset = late.wait;
    const step = ask('POST', `/v1/sessions/${id}/step`, { action: 'add' });
    await late.arrived;
    t.equal((await ask('DELETE', `/v1/sessions/${id}`)).status, 204);
    late.pass();
    t.match(await step, { status: 200 });
    t.equal(service.begun, 2);
    t.equal(service.open.size, 0);
  },
);

t.test('an automatic reset to a state that is too large leaves no episode behind', async t => {
  const { service, ask, open } = await serving(t, { maxBytesPerSession: 60_000 });
  const id = await open({ wrappers: [{ name: 'auto_reset' }] });
  service.length = 100_000;
  t.match(await ask('POST', `/v1/sessions/${id}/step`, { action: 'add' }), {
    body: { code: 'session_budget_exceeded' },
  });
  t.equal(service.begun, 2);
  t.equal(service.open.size, 0);
});
