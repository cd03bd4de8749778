import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { Body } from '../../../test/app.test-data.ts';
import { type ServerProcess, startServer } from '../../../test/process.test-data.ts';
import { EXAMPLES } from '../../custom/examples.ts';
import { lacksValkey, testValkey } from '../../store/valkey.test-data.ts';

/** The contract of both stores: whether SQLite or Valkey has the sessions, the same requests get the same replies. */

t.setTimeout(300_000);

const GAME = { env_id: 'Game2048-v0', seed: 5, wrappers: [{ name: 'auto_reset' }] };
const ACTIONS = ['Left', 'Up', 'Right', 'Down'];

/** Flags of a server on a store that is new. */
const STORES: readonly {
  readonly name: string;
  readonly skip: string | false;
  flags(t: Test): Promise<string[]>;
}[] = [
  {
    name: 'SQLite',
    skip: false,
    async flags(t) {
      const folder = mkdtempSync(join(tmpdir(), 'ragen-contract-'));
      t.teardown(() => rmSync(folder, { recursive: true, force: true, maxRetries: 20 }));
      return ['--data', folder];
    },
  },
  {
    name: 'Valkey',
    skip: lacksValkey,
    async flags(t) {
      return ['--store', (await testValkey(t)).address];
    },
  },
];

const idsOf = ({ sessions }: Body): string[] =>
  (sessions as unknown as Body[]).map(({ session_id }) => String(session_id));

/** A client that keeps what it got, and asks for it again at a server that comes later. */
async function played({ ask }: ServerProcess) {
  const keyed = (key: string) => ({ 'idempotency-key': key });
  const opened = await ask('POST', '/v1/sessions', { ...GAME, count: 2 }, keyed('open'));
  const [id, other] = idsOf(opened.body);
  const at = `/v1/sessions/${id}`;
  for (let n = 0; n < 70; n++) await ask('POST', `${at}/step`, { action: ACTIONS[n % 4] }, keyed(`k${n}`));
  const snapshot = await ask('POST', `${at}/snapshot`, {}, keyed('snapshot'));
  const cloned = await ask('POST', `${at}/clone`, { count: 2 }, keyed('clone'));
  const last = await ask('POST', `${at}/step`, { action: 'Left' }, keyed('last'));
  await ask('POST', `/v1/sessions/${other}/reset`, { seed: 9 });
  const registered = await ask('POST', '/v1/envs', EXAMPLES.tabular.value);
  const closed = await ask('POST', '/v1/sessions', { env_id: 'Bandit-v0' });
  await ask('DELETE', `/v1/sessions/${closed.body.session_id}`);
  const seen = async (from: ServerProcess['ask']) => ({
    opened: (await from('POST', '/v1/sessions', { ...GAME, count: 2 }, keyed('open'))).body.sessions,
    reused: (await from('POST', '/v1/sessions', { ...GAME, count: 3 }, keyed('open'))).body.code,
    state: await stateOf(from, id),
    other: await stateOf(from, other),
    clones: await Promise.all(idsOf(cloned.body).map(clone => stateOf(from, clone))),
    cloned: idsOf((await from('POST', `${at}/clone`, { count: 2 }, keyed('clone'))).body),
    snapshot: (await from('POST', `${at}/snapshot`, {}, keyed('snapshot'))).body.snapshot_id,
    last: (await from('POST', `${at}/step`, { action: 'Left' }, keyed('last'))).body,
    wrong: (await from('POST', `${at}/step`, { action: 'Left', expected_step: 3 })).body.code,
    trajectory: (await from('GET', `${at}/trajectory`)).text,
    listed: idsOf((await from('GET', '/v1/sessions')).body),
    environment: (await from('GET', '/v1/envs/demo%2FCrossing-v0')).body.title,
    closed: (await from('GET', `/v1/sessions/${closed.body.session_id}`)).body.code,
  });
  return { id, last, snapshot: String(snapshot.body.snapshot_id), registered, seen };
}

async function stateOf(ask: ServerProcess['ask'], id: string) {
  const { env_id, seed, step, observation, group_id } = (await ask('GET', `/v1/sessions/${id}`)).body;
  return { env_id, seed, step, observation, group_id };
}

for (const { name, skip, flags } of STORES) {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    t.test(`${name}: after ${signal} the next server answers as the one before it`, { skip }, async t => {
      const all = await flags(t);
      const first = await startServer(t, all);
      const { id, last, snapshot, registered, seen } = await played(first);
      t.equal(registered.status, 201);
      t.equal(last.status, 200, last.text);
      const before = await seen(first.ask);
      t.match(before, {
        reused: 'key_reused',
        state: { step: 71 },
        other: { step: 0, seed: 9 },
        clones: [{ step: 70 }, { step: 70 }],
        wrong: 'wrong_step',
        closed: 'session_closed',
        environment: 'River crossing',
      });
      t.equal(before.listed.length, 4);
      await first.end(signal);

      const again = await startServer(t, all);
      t.same(await seen(again.ask), before);
      const next = await again.ask('POST', `/v1/sessions/${id}/step`, { action: 'Up' });
      t.match(next, { status: 200, body: { step: 72 } });
      const restored = await again.ask('POST', `/v1/sessions/${id}/restore`, { snapshot_id: snapshot });
      t.match(restored, { status: 200, body: { step: 70 } });
      t.same(await again.end('SIGTERM'), { code: 0, signal: null });
    });
  }
}
