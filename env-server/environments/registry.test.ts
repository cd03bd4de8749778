import t from 'tap';
import type { AnyEnvironment } from './core/environment.ts';
import { ENVIRONMENT_ID } from './core/environment.ts';
import { createRegistry } from './registry.ts';

t.test('built-ins are listed and found by id', async t => {
  const registry = createRegistry();
  const ids = registry.list().map(environment => environment.spec.id);
  t.equal(new Set(ids).size, ids.length);
  for (const id of ids) {
    t.match(id, ENVIRONMENT_ID);
    t.equal(registry.get(id).spec.id, id);
    t.ok(registry.isBuiltIn(id));
  }
});

t.test(
  'environments answer under their former ids, which the list leaves out and nobody can take',
  async t => {
    const registry = createRegistry();
    const listed = registry.list().map(({ spec }) => spec.id);
    for (const [alias, id] of [
      ['ALFWorld-v0', 'TextHousehold-v0'],
      ['WebShop-v0', 'TextShop-v0'],
      ['MetaMathQA-v0', 'MathWordProblems-v0'],
    ]) {
      const environment = registry.get(alias);
      const { aliases, ...spec } = registry.get(id).spec;
      t.same(aliases, [alias]);
      t.same(environment, { ...registry.get(id), spec: { ...spec, id: alias } });
      t.notOk(listed.includes(alias));
      t.ok(registry.isBuiltIn(alias));
      t.throws(() => registry.register(environment), /built in/);
      t.throws(() => registry.remove(alias), /built in/);
    }
    t.throws(() => registry.get('Webshop-v9'), /did you mean WebShop-v0/);
  },
);

t.test('an unknown id names close matches', async t => {
  const registry = createRegistry();
  t.throws(() => registry.get('frozenlake-v1'), /did you mean FrozenLake-v0\?$/);
  t.throws(() => registry.get('someone/Sokoban'), /did you mean Sokoban-v0\?$/);
  for (const id of ['CartPole-v1', 'Taxi-v3', '', '-v0', 'x'.repeat(100_000)]) {
    t.throws(() => registry.get(id), /; GET \/v1\/envs lists those there are$/, id);
  }
});

t.test('the order of the list is the same at any time, so that it can be read in pages', async t => {
  const registry = createRegistry();
  const lake = registry.get('FrozenLake-v0');
  const builtIn = registry.list().map(({ spec }) => spec.id);
  for (const id of ['z/A-v0', 'a/Z-v0', 'm/M-v0']) registry.register({ ...lake, spec: { ...lake.spec, id } });
  const ids = (after?: string) => registry.list(after).map(({ spec }) => spec.id);
  t.same(ids(), [...builtIn, 'a/Z-v0', 'm/M-v0', 'z/A-v0']);
  t.same(ids(builtIn[0]), ids().slice(1));
  t.same(ids(builtIn.at(-1)), ['a/Z-v0', 'm/M-v0', 'z/A-v0']);
  registry.remove('m/M-v0');
  t.same(ids('m/M-v0'), ['z/A-v0'], 'behind one that has gone');
  t.same(ids('z/A-v0'), []);
});

t.test('environments can be added, replaced and removed, built-ins cannot', async t => {
  const registry = createRegistry();
  const lake = registry.get('FrozenLake-v0');
  const renamed = (id: string): AnyEnvironment => ({ ...lake, spec: { ...lake.spec, id } });
  registry.register(renamed('team/Lake-v2'));
  const replacement = renamed('team/Lake-v2');
  registry.register(replacement);
  t.equal(registry.find('team/Lake-v2'), replacement);
  t.equal(registry.remove('team/Lake-v2'), true);
  t.equal(registry.remove('team/Lake-v2'), false);
  t.throws(() => registry.register(renamed('FrozenLake-v0')), /built in/);
  t.throws(() => registry.remove('FrozenLake-v0'), /built in/);
  t.throws(() => registry.register(renamed('Lake')), /Name-vN/);
});
