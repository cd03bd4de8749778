import t from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { App } from '../../app.ts';
import { EXAMPLES } from '../../custom/examples.ts';
import { BUILT_IN } from '../../environments/registry.ts';
import { planOf } from '../episodes/state-queries.ts';
import { play, server } from './restart.test-data.ts';

/** Sessions of every environment and every wrapper over a restart. */

t.setTimeout(900_000);

const STEPS = 6;

/** Actions that mean something in an environment, found by playing it. */
async function actionsOf(app: App, id: string): Promise<Json[]> {
  const principal = { name: 'local', scopes: new Set(['admin' as const]) };
  const session = app.sessions.find(principal, id);
  const { variant, episode } = session;
  const { references = {}, spec } = variant.environment;
  const [policy] = Object.keys(references);
  const planned = policy ? await planOf(variant, episode, { policy, count: STEPS }) : [];
  return [...planned, ...new Array<Json>(STEPS).fill(spec.exampleAction)].slice(0, STEPS);
}

const choices: { name: string; options?: JsonObject }[][] = [
  [],
  [
    { name: 'sticky_actions', options: { probability: 0.5 } },
    { name: 'time_limit', options: { max_steps: 40 } },
  ],
  [{ name: 'random_actions', options: { probability: 0.5 } }, { name: 'history' }],
  [{ name: 'auto_reset' }],
  [{ name: 'record' }],
  [{ name: 'action_text' }],
];

t.test('a restart does not change the episodes of any environment', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const stayed: { id: string; actions: Json[]; before: JsonObject; twin: string }[] = [];
  for (const environment of BUILT_IN) {
    const env_id = environment.spec.id;
    const presets: JsonObject[] = [
      {},
      ...Object.keys(environment.spec.presets ?? {}).map(preset => ({ preset })),
    ];
    for (const config of presets) {
      const created = await first.ask('POST', '/v1/sessions', { env_id, config, seed: 7 });
      // Some presets need a service or files that are not here.
      if (!created.session_id) continue;
      const actions = await actionsOf(first, created.session_id);
      await play(first.ask, created.session_id, actions.slice(0, 2));
      const { sessions } = await first.ask('POST', `/v1/sessions/${created.session_id}/clone`);
      const before = await first.ask('GET', `/v1/sessions/${created.session_id}`);
      stayed.push({ id: created.session_id, actions, before, twin: sessions[0].session_id });
    }
  }
  t.same(
    new Set(stayed.map(({ before }) => before.env_id)),
    new Set(BUILT_IN.map(({ spec }) => spec.id)),
    `${stayed.length} sessions`,
  );
  const rest = (actions: readonly Json[]) => actions.slice(2);
  const futures = new Map<string, JsonObject[]>();
  for (const { twin, actions } of stayed) futures.set(twin, await play(first.ask, twin, rest(actions)));
  await first.server.close();

  const again = await server(t, data);
  t.equal(again.sessions.size, 2 * stayed.length);
  for (const { id, actions, before, twin } of stayed) {
    const name = String(before.env_id);
    t.same(await again.ask('GET', `/v1/sessions/${id}`), before, `${name} stands where it stood`);
    const future = await play(again.ask, id, rest(actions));
    const unnamed = (replies: JsonObject[]) =>
      replies.map(({ session_id: _session, episode_id: _episode, detail: _detail, ...reply }) => reply);
    t.same(unnamed(future), unnamed(futures.get(twin)!), `${name} continues as it would have`);
    const records = String(await again.ask('GET', `/v1/sessions/${id}/trajectory`))
      .trimEnd()
      .split('\n');
    t.match(JSON.parse(records[0]), { type: 'reset', seed: before.seed }, `${name} replays`);
  }
});

t.test('wrappers, groups, options, formats and snapshots come along', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const made: { id: string; snapshot_id: string; futures: JsonObject[][]; listed: object }[] = [];
  for (const wrappers of choices) {
    const created = await first.ask('POST', '/v1/sessions', {
      env_id: 'test/Counter-v0',
      config: { preset: 'long' },
      options: { start: 3 },
      wrappers,
      group_id: 'mine',
      observation_format: 'structured',
    });
    const id = created.session_id;
    const action = wrappers[0]?.name === 'action_text' ? '<answer>draw</answer>' : 'draw';
    await play(first.ask, id, [action, action]);
    const { snapshot_id } = await first.ask('POST', `/v1/sessions/${id}/snapshot`);
    const future = await play(first.ask, id, new Array(10).fill(action));
    made.push({
      id,
      snapshot_id,
      futures: [future],
      listed: await first.ask('GET', `/v1/sessions/${id}`),
    });
  }
  await first.server.close();
  const again = await server(t, data);
  const { sessions } = await again.ask('GET', '/v1/sessions?group_id=mine');
  t.same(
    sessions.map(({ session_id }: { session_id: string }) => session_id),
    made.map(({ id }) => id),
    'in the order of their creation',
  );
  for (const [index, { id, snapshot_id, futures, listed }] of made.entries()) {
    const name = choices[index].map(choice => choice.name).join(', ') || 'no wrapper';
    t.same(await again.ask('GET', `/v1/sessions/${id}`), listed, name);
    const restored = await again.ask('POST', `/v1/sessions/${id}/restore`, { snapshot_id });
    t.match(restored.episode_id, /\.2$/, 'episodes are counted on');
    const action = choices[index][0]?.name === 'action_text' ? '<answer>draw</answer>' : 'draw';
    const unnamed = (replies: JsonObject[]) => replies.map(({ episode_id: _, ...reply }) => reply);
    t.same(unnamed(await play(again.ask, id, new Array(10).fill(action))), unnamed(futures[0]), name);
    const next = await again.ask('POST', `/v1/sessions/${id}/snapshot`);
    t.not(next.snapshot_id, snapshot_id, 'snapshot ids are not given twice');
  }
  const later = await again.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', group_id: 'mine' });
  const page = await again.ask('GET', '/v1/sessions?group_id=mine&limit=100');
  t.equal(page.sessions.at(-1).session_id, later.session_id);
});

t.test('an environment that holds more than its state answers 410 with the reason', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const { session_id } = await first.ask('POST', '/v1/sessions', { env_id: 'test/Held-v0' });
  await first.server.close();
  const again = await server(t, data);
  t.match(await again.ask('POST', `/v1/sessions/${session_id}/step`, { action: 'add' }), {
    status: 410,
    code: 'session_lost',
    detail: /is lost: test\/Held-v0 holds more than its state/,
  });
});

t.test('sessions of custom environments resume unless their definition was replaced', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const example = (kind: string) => EXAMPLES[kind].value as { env_id: string; definition: JsonObject };
  const [tabular, script] = [example('tabular'), example('script')];
  const composed = {
    env_id: 'me/Guesses-v0',
    definition: {
      kind: 'composed',
      env_id: script.env_id,
      config: { largest: 1000 },
      wrappers: [{ name: 'history' }],
    },
  };
  const ids: { [envId: string]: string } = {};
  const actions: { [envId: string]: Json } = {
    [tabular.env_id]: 'Swim',
    [script.env_id]: '50',
    [composed.env_id]: '500',
  };
  const futures: { [envId: string]: object } = {};
  const unnamed = (replies: JsonObject[]) =>
    replies.map(({ session_id: _session, episode_id: _episode, detail: _detail, ...reply }) => reply);
  for (const value of [tabular, script, composed]) {
    const { env_id } = value;
    t.match(await first.ask('POST', '/v1/envs', value), { env_id });
    const { session_id } = await first.ask('POST', '/v1/sessions', { env_id, seed: 4 });
    ids[env_id] = session_id;
    await play(first.ask, session_id, [actions[env_id]]);
    const { sessions } = await first.ask('POST', `/v1/sessions/${session_id}/clone`);
    futures[env_id] = unnamed(
      await play(first.ask, sessions[0].session_id, new Array(4).fill(actions[env_id])),
    );
  }
  const again = { env_id: tabular.env_id, seed: 4 };
  const old = await first.ask('POST', '/v1/sessions', again);
  await first.server.close();

  const second = await server(t, data);
  for (const [env_id, id] of Object.entries(ids)) {
    const replies = await play(second.ask, id, new Array(4).fill(actions[env_id]));
    t.same(unnamed(replies), futures[env_id], env_id);
  }
  const route = `/v1/envs/${encodeURIComponent(tabular.env_id)}`;
  const { statusCode } = await second.server.inject({
    method: 'PUT',
    url: route,
    payload: { definition: { ...tabular.definition, max_episode_steps: 5 } },
  });
  t.equal(statusCode, 200);
  t.match(
    await second.ask('GET', `/v1/sessions/${old.session_id}`),
    { step: 0 },
    'it continues while the server lives',
  );
  const fresh = await second.ask('POST', '/v1/sessions', again);
  await second.server.close();

  const third = await server(t, data);
  t.match(await third.ask('GET', `/v1/sessions/${old.session_id}`), {
    status: 410,
    code: 'session_lost',
    detail: /demo\/Crossing-v0 was replaced while the session was open/,
  });
  t.match(await third.ask('GET', `/v1/sessions/${fresh.session_id}`), { max_episode_steps: 5 });
});
