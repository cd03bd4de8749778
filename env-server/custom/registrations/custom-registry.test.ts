import t, { type Test } from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { isProblem } from '../../../test/app.test-data.ts';
import type { Settings } from '../../config/settings.ts';
import { PersistenceHealth } from '../../persistence/persistence-health.ts';
import { openStore } from '../../persistence/store.ts';
import { hashToken } from '../../transports/access/auth.ts';
import { at, server, tabular } from './registrations.test-data.ts';

const TOKENS = JSON.stringify(
  ['ann', 'bob', 'eve'].map(name => ({ name, sha256: hashToken(name), scopes: ['play', 'register'] })),
);
const { definition } = tabular;
const BASE = 'ann/A-v0';
const from = (env_id: string, config: JsonObject = {}) => ({ kind: 'composed', env_id, config });

/** A server with the clients ann, bob and eve. */
async function shared(t: Test, settings: Partial<Settings> = {}, lines: string[] = []) {
  const app = await server(t, { ...settings, tokens: TOKENS }, lines);
  const register = (token: string, env_id: string, definition: JsonObject) =>
    app.ask('POST', '/v1/envs', { env_id, definition }, token);
  const play = (token: string, env_id: string) => app.ask('POST', '/v1/sessions', { env_id }, token);
  return { ...app, register, play };
}

t.test('an owner can remove an environment that another token has composed from', async t => {
  const lines: string[] = [];
  const { ask, register, play } = await shared(t, {}, lines);
  await register('ann', BASE, definition);
  await register('bob', 'bob/B-v0', from(BASE, { max_steps: 4 }));
  await register('bob', 'bob/C-v0', from('bob/B-v0'));
  t.equal((await play('bob', 'bob/C-v0')).status, 201);

  const shorter = { definition: { ...definition, max_episode_steps: 2 } };
  t.equal((await ask('PUT', at(BASE), shorter, 'ann')).status, 200);
  for (const id of ['bob/B-v0', 'bob/C-v0']) {
    const refused = await play('bob', id);
    isProblem(t, refused, 'unknown_environment');
    t.match(String(refused.body.detail), /is registered but cannot be made any more/);
  }
  t.ok(lines.some(line => line.includes('bob/C-v0 was registered but cannot be made any more')));

  t.equal((await ask('PUT', at(BASE), { definition }, 'ann')).status, 200);
  t.equal((await play('bob', 'bob/C-v0')).status, 201, 'it fits again');

  t.equal((await ask('DELETE', at(BASE), undefined, 'ann')).status, 204);
  isProblem(t, await play('bob', 'bob/C-v0'), 'unknown_environment');
  t.equal((await ask('PUT', at('bob/B-v0'), { definition }, 'bob')).status, 200, 'its owner may mend it');
  t.equal((await play('bob', 'bob/C-v0')).status, 201);
});

t.test('an environment stays while its owner composes from it, even through another owner', async t => {
  const { ask, register } = await shared(t);
  await register('ann', BASE, definition);
  await register('bob', 'bob/B-v0', from(BASE, { max_steps: 4 }));
  await register('ann', 'ann/C-v0', from('bob/B-v0'));
  const removed = await ask('DELETE', at(BASE), undefined, 'ann');
  isProblem(t, removed, 'environment_in_use');
  t.match(String(removed.body.detail), /^ann\/C-v0 is composed/);
  const shorter = { definition: { ...definition, max_episode_steps: 2 } };
  isProblem(t, await ask('PUT', at(BASE), shorter, 'ann'), 'environment_in_use');
});

t.test('no other owner can reuse the id of an environment that others compose from', async t => {
  const { ask, register, play } = await shared(t);
  await register('ann', BASE, definition);
  await register('bob', 'bob/B-v0', from(BASE));
  await ask('DELETE', at(BASE), undefined, 'ann');
  t.equal((await register('eve', BASE, definition)).status, 201);
  isProblem(t, await play('bob', 'bob/B-v0'), 'unknown_environment');
  await ask('DELETE', at(BASE), undefined, 'eve');
  await register('ann', BASE, definition);
  t.equal((await play('bob', 'bob/B-v0')).status, 201);
});

t.test('other processes drop environments composed from a removed one', async t => {
  const data = t.testdir();
  const one = await shared(t, { data });
  const storage = { store: openStore(data), health: new PersistenceHealth() };
  const other = await server(t, { tokens: TOKENS }, [], storage);
  await one.register('ann', BASE, definition);
  await one.register('bob', 'bob/B-v0', from(BASE));
  other.registrations.refresh();
  t.equal((await other.ask('GET', at('bob/B-v0'), undefined, 'bob')).status, 200);
  await one.ask('DELETE', at(BASE), undefined, 'ann');
  other.registrations.refresh();
  isProblem(t, await other.ask('GET', at('bob/B-v0'), undefined, 'bob'), 'unknown_environment');
});

t.test('the number of environments is limited for each token and for all', async t => {
  const { register } = await shared(t, { maxCustomEnvironments: 4 });
  for (let i = 0; i < 3; i++) t.equal((await register('bob', `bob/B-v${i}`, definition)).status, 201);
  const refused = await register('bob', 'bob/B-v3', definition);
  isProblem(t, refused, 'too_many_environments');
  t.match(String(refused.body.detail), /you have 3 custom environments/);
  t.equal((await register('ann', BASE, definition)).status, 201, 'there is a place for others');
  const full = await register('eve', 'eve/A-v0', definition);
  isProblem(t, full, 'too_many_environments');
  t.match(String(full.body.detail), /the server holds 4/);
});

t.test('the limit of environments for each token is a setting', async t => {
  const { register } = await shared(t, { maxCustomEnvironmentsPerClient: 1 });
  t.equal((await register('bob', 'bob/B-v0', definition)).status, 201);
  isProblem(t, await register('bob', 'bob/B-v1', definition), 'too_many_environments');
});
