import t, { type Test } from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { testRegistry } from '../../test/environments.test-data.ts';
import { createApp } from '../app.ts';
import type { Settings } from '../config/settings.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';

/** What an environment holds outside its states is released once, and a failure to release it costs nobody else. */

const ENV_ID = 'test/Elsewhere-v0';

type State = { readonly episode: number; readonly text: string };

/** A service whose episodes are open until they are released, as an environment. */
function elsewhere() {
  const service = {
    /** Episodes that were begun and not released. */
    open: new Set<number>(),
    /** Those that were released twice. */
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
  const app = await createApp({ logLevel: 'silent', ...settings }, { registry });
  t.teardown(() => app.server.close());
  const ask = async (method: 'GET' | 'POST' | 'DELETE', url: string, payload?: JsonObject) => {
    const reply = await app.server.inject({ method, url, payload });
    return { status: reply.statusCode, body: reply.body === '' ? {} : reply.json() };
  };
  const create = (more: JsonObject = {}) => ask('POST', '/v1/sessions', { env_id: ENV_ID, ...more });
  const open = async (more: JsonObject = {}) => String((await create(more)).body.session_id);
  const faults = async () => {
    const { body } = await app.server.inject({ url: '/metrics' });
    const line = new RegExp(`^ragen_environment_faults_total\\{env_id="${ENV_ID}"\\} (\\d+)$`, 'm');
    return Number(line.exec(body)?.[1]);
  };
  return { app, service, ask, create, open, faults };
}

const FAILURES: { readonly [how: string]: () => void | Promise<void> } = {
  'throws at once': () => {
    throw new Error('it cannot be closed now');
  },
  'fails later': () => Promise.reject(new Error('it cannot be closed now')),
};

t.test('an environment that fails to release a state counts a fault, and the server goes on', async t => {
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
