import { hash } from 'node:crypto';
import t from 'tap';
import { isProblem } from '../../../test/app.test-data.ts';
import { PersistenceHealth } from '../../persistence/persistence-health.ts';
import { auditOf } from '../../persistence/store.test-data.ts';
import { openStore } from '../../persistence/store.ts';
import { hashToken } from '../../transports/access/auth.ts';
import { at, script, server, tabular } from './registrations.test-data.ts';

t.test('all registrations are restored after a restart, in any order', async t => {
  const data = t.testdir();
  const first = await server(t, { data });
  t.match((await first.ask('POST', '/v1/envs', script)).body, { durable: true });
  await first.ask('POST', '/v1/envs', {
    env_id: 'me/A-v0',
    definition: { kind: 'composed', env_id: script.env_id },
  });
  await first.ask('POST', '/v1/envs', tabular);
  await first.ask('PUT', at('me/A-v0'), { definition: { kind: 'composed', env_id: tabular.env_id } });
  await first.ask('DELETE', at(script.env_id));
  await first.close();

  const again = await server(t, { data });
  const { body } = await again.ask('GET', '/v1/envs?search=demo');
  t.match(body.environments, [{ env_id: tabular.env_id }]);
  t.match((await again.ask('POST', '/v1/sessions', { env_id: 'me/A-v0' })).body, {
    observation: /near bank/,
  });
  t.match((await again.ask('GET', at('me/A-v0', '/definition'))).body, { revision: 2, kind: 'composed' });
  await again.close();

  const store = openStore(data);
  t.teardown(() => store.close());
  t.same(
    auditOf(store).map(({ action, envId, principal }) => `${principal} ${action} ${envId}`),
    [
      'local register demo/Guess-v0',
      'local register me/A-v0',
      'local register demo/Crossing-v0',
      'local replace me/A-v0',
      'local remove demo/Guess-v0',
    ],
  );
});

t.test('processes on one database offer the same environments', async t => {
  const data = t.testdir();
  const one = await server(t, { data });
  // A worker of the same server: it takes no lock.
  const storage = { store: openStore(data), health: new PersistenceHealth() };
  const other = await server(t, {}, [], storage);
  await one.ask('POST', '/v1/envs', tabular);
  await one.ask('POST', '/v1/envs', {
    env_id: 'me/A-v0',
    definition: { kind: 'composed', env_id: tabular.env_id },
  });
  other.registrations.refresh();
  t.match((await other.ask('POST', '/v1/sessions', { env_id: 'me/A-v0' })).body.observation, /You stand/);

  const changed = JSON.parse(JSON.stringify(tabular.definition).replace('You stand', 'You sit'));
  await one.ask('PUT', at(tabular.env_id), { definition: changed });
  other.registrations.refresh();
  t.match((await other.ask('POST', '/v1/sessions', { env_id: 'me/A-v0' })).body.observation, /You sit/);

  isProblem(t, await other.ask('POST', '/v1/envs', tabular), 'environment_exists');
  await one.ask('DELETE', at('me/A-v0'));
  other.registrations.refresh();
  isProblem(t, await other.ask('GET', at('me/A-v0')), 'unknown_environment');
  await one.ask('POST', '/v1/envs', script);
  isProblem(t, await other.ask('POST', '/v1/envs', script), 'environment_exists');
});

t.test('an environment that no longer builds is logged, left out and kept in the store', async t => {
  const data = t.testdir();
  const first = await server(t, { data });
  await first.ask('POST', '/v1/envs', tabular);
  await first.close();
  const store = openStore(data);
  const [stored] = store.environments();
  const entry = {
    at: 0,
    principal: 'x',
    action: 'register',
    envId: 'me/Lost-v0',
    kind: 'composed',
    sha256: '',
    outcome: 'accepted',
  } as const;
  await store.putEnvironment(
    { ...stored, envId: 'me/Lost-v0', kind: 'composed', definition: { kind: 'composed', env_id: 'Gone-v0' } },
    entry,
  );
  await store.close();
  const lines: string[] = [];
  const again = await server(t, { data }, lines);
  t.equal((await again.ask('GET', at(tabular.env_id))).status, 200);
  isProblem(t, await again.ask('GET', at('me/Lost-v0')), 'unknown_environment');
  t.ok(lines.some(line => line.includes('me/Lost-v0 was registered but cannot be made any more')));
  t.equal((await again.ask('DELETE', at('me/Lost-v0'))).status, 204, 'its owner can remove it');
});

t.test('registrations belong to their token, and the log records who did what', async t => {
  const token = (name: string, ...scopes: string[]) => ({ name, sha256: hashToken(name), scopes });
  const tokens = JSON.stringify([
    token('ann', 'play', 'register'),
    token('bob', 'play', 'register'),
    token('eve', 'play'),
    token('root', 'admin'),
  ]);
  const lines: string[] = [];
  const { ask } = await server(t, { tokens }, lines);
  isProblem(t, await ask('POST', '/v1/envs', tabular, 'eve'), 'forbidden');
  isProblem(t, await ask('POST', '/v1/envs', tabular), 'unauthorized');
  t.equal((await ask('POST', '/v1/envs', tabular, 'ann')).body.owner, 'ann');
  t.equal(
    (await ask('POST', '/v1/sessions', { env_id: tabular.env_id }, 'eve')).status,
    201,
    'anybody may play',
  );
  const { definition } = tabular;
  isProblem(t, await ask('PUT', at(tabular.env_id), { definition }, 'bob'), 'forbidden');
  isProblem(t, await ask('DELETE', at(tabular.env_id), undefined, 'bob'), 'forbidden');
  isProblem(t, await ask('GET', at(tabular.env_id, '/definition'), undefined, 'bob'), 'forbidden');
  isProblem(t, await ask('GET', at(tabular.env_id, '/definition'), undefined, 'eve'), 'forbidden');
  isProblem(t, await ask('POST', at('Sokoban-v0', '/check'), undefined, 'eve'), 'forbidden');
  isProblem(t, await ask('DELETE', at(tabular.env_id), undefined, 'eve'), 'forbidden');
  t.match((await ask('PUT', at(tabular.env_id), { definition }, 'root')).body, { owner: 'ann', revision: 2 });
  const audits = lines.map(line => JSON.parse(line)).filter(({ audit }) => audit);
  const sha256 = hash('sha256', JSON.stringify(definition), 'hex');
  t.match(audits, [
    {
      audit: 'register',
      principal: 'eve',
      env_id: tabular.env_id,
      kind: 'tabular',
      outcome: 'forbidden',
      sha256,
    },
    {
      audit: 'register',
      principal: 'ann',
      env_id: tabular.env_id,
      kind: 'tabular',
      outcome: 'accepted',
      sha256,
    },
    {
      audit: 'replace',
      principal: 'bob',
      env_id: tabular.env_id,
      kind: 'tabular',
      outcome: 'forbidden',
      sha256,
    },
    {
      audit: 'remove',
      principal: 'bob',
      env_id: tabular.env_id,
      kind: 'tabular',
      outcome: 'forbidden',
      sha256,
    },
    { audit: 'remove', principal: 'eve', env_id: tabular.env_id, kind: '', outcome: 'forbidden', sha256: '' },
    {
      audit: 'replace',
      principal: 'root',
      env_id: tabular.env_id,
      kind: 'tabular',
      outcome: 'accepted',
      sha256,
    },
  ]);
  t.equal(audits.length, 6);
});

t.test('the store keeps rejected registrations, too', async t => {
  const data = t.testdir();
  const first = await server(t, { data });
  await first.ask('POST', '/v1/envs', tabular);
  await first.ask('POST', '/v1/envs', tabular);
  await first.ask('DELETE', at('me/Unknown-v0'));
  await first.ask('DELETE', at('Sokoban-v0'));
  await first.ask('PUT', at(tabular.env_id), { definition: { kind: 'magic' } });
  await first.ask('POST', '/v1/envs', { env_id: 'me/A-v0', definition: [[{ kind: 'tabular' }]] });
  await first.close();
  const store = openStore(data);
  t.teardown(() => store.close());
  t.same(
    auditOf(store).map(({ action, envId, kind, outcome }) => [action, envId, kind, outcome]),
    [
      ['register', tabular.env_id, 'tabular', 'accepted'],
      ['register', tabular.env_id, 'tabular', 'environment_exists'],
      ['remove', 'me/Unknown-v0', '', 'unknown_environment'],
      ['remove', 'Sokoban-v0', '', 'builtin_environment'],
      ['replace', tabular.env_id, 'magic', 'invalid_request'],
      ['register', 'me/A-v0', '', 'invalid_request'],
    ],
  );
});
