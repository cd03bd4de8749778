import { join } from 'node:path';
import { Writable } from 'node:stream';
import { pino } from 'pino';
import t, { type Test } from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { silentApp } from '../../../test/app.test-data.ts';
import { testRegistry } from '../../../test/environments.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import type { Settings } from '../../config/settings.ts';
import { fill, smallDisk } from '../../persistence/small-disk.test-data.ts';

/** Sessions on a disk that is full. */

t.setTimeout(900_000);

const DISK_BYTES = 3 * 1024 * 1024;
const BATCH = 100;

async function server(t: Test, data: string, more: Partial<Settings> = {}) {
  const lines: JsonObject[] = [];
  const log = pino(
    { level: 'warn' },
    new Writable({
      write(chunk, _encoding, done) {
        lines.push(JSON.parse(String(chunk)));
        done();
      },
    }),
  );
  const app = await silentApp(t, { data, checkpointSeconds: 0, ...more }, { registry: testRegistry(), log });
  const { ask } = app;
  /** Takes steps until one is refused, at most this many; says how many were taken, and why the next one was not. */
  const play = async (session_id: string, most: number) => {
    let taken = 0;
    while (taken < most) {
      const items = new Array(BATCH).fill({ op: 'step', session_id, action: 'add' });
      const { body } = await ask('POST', '/v1/batch', { items });
      const refused = body.results.find(({ ok }: { ok: boolean }) => !ok);
      taken += body.results.filter(({ ok }: { ok: boolean }) => ok).length;
      if (refused) return { taken, error: refused.error };
    }
    return { taken, error: undefined };
  };
  const open = async (more: object = {}) => {
    const request = { env_id: 'test/Counter-v0', wrappers: [{ name: 'auto_reset' }], ...more };
    return (await ask('POST', '/v1/sessions', request)).body;
  };
  return { ...app, lines, play, open };
}

t.test(
  'on a full disk playing continues within a bound, and everything is written when there is room',
  async t => {
    const disk = smallDisk(t, DISK_BYTES);
    if (disk === undefined) {
      t.comment('skipped: a tmpfs cannot be mounted here');
      return;
    }
    const data = join(disk, 'data');
    const first = await server(t, data, { journalMaxMb: 0.5 });
    const { session_id } = await first.open();
    t.equal((await first.play(session_id, BATCH)).error, undefined);
    const free = fill(disk);
    const full = await first.play(session_id, 100_000);
    t.match(full.error, { code: 'storage_full', status: 507, retryable: true });
    t.match(full.error.detail, /bytes of earlier operations wait to be written/);
    t.ok(full.taken > 100, `${full.taken} steps were taken meanwhile`);
    t.match((await first.ask('GET', '/readyz')).body, {
      status: 507,
      code: 'storage_full',
      persistence: { state: 'degraded', bytes_waiting: Number },
    });
    t.match((await first.ask('GET', '/metrics')).text, 'ragen_persistence_degraded{part="journal"} 1\n');
    t.equal((await first.ask('GET', `/v1/sessions/${session_id}`)).status, 200, 'looking at it continues');
    free();
    await until(async () => (await first.ask('GET', '/readyz')).status === 200);
    t.equal((await first.play(session_id, BATCH)).error, undefined);
    const { body: before } = await first.ask('GET', `/v1/sessions/${session_id}`);
    t.equal(before.step, full.taken + 2 * BATCH);
    await first.server.close();
    t.same(
      first.lines.filter(({ msg }) => /could not be/.test(String(msg))),
      [],
    );

    const again = await server(t, data);
    t.match((await again.ask('GET', `/v1/sessions/${session_id}`)).body, {
      step: before.step,
      observation: before.observation,
    });
  },
);

t.test(
  'an end on a full disk says what could not be saved, and the next start reports it to clients',
  async t => {
    const disk = smallDisk(t, DISK_BYTES);
    if (disk === undefined) {
      t.comment('skipped: a tmpfs cannot be mounted here');
      return;
    }
    for (const durability of ['journal', 'checkpoint'] as const) {
      const data = join(disk, durability);
      const first = await server(t, data, { durability });
      const { session_id } = await first.open();
      const free = fill(disk);
      const { sessions } = await first.open({ count: 100 });
      await first.play(session_id, 2000);
      await first.shutDown(100);
      const line = first.lines.find(({ msg }) =>
        /sessions could not be written to the database/.test(String(msg)),
      );
      t.match(line, { level: 50, count: Number, sessions: Array }, durability);
      t.match(String(line?.msg), sessions[0].session_id);
      free();
      const again = await server(t, data, { durability });
      const reply = await again.ask('POST', `/v1/sessions/${session_id}/step`, { action: 'add' });
      t.match(reply.body.code, /^(session_rolled_back|unknown_session)$/, durability);
      await again.server.close();
    }
  },
);

t.test('a database that takes no writes costs nothing while the journal does', async t => {
  const data = t.testdir();
  const { DatabaseSync } = await import('node:sqlite');
  const first = await server(t, data, { checkpointSeconds: 0.01 });
  const { session_id } = await first.open();
  const database = new DatabaseSync(join(data, 'ragen.db'));
  t.teardown(() => database.close());
  database.exec('BEGIN IMMEDIATE');
  await first.play(session_id, BATCH);
  await until(async () => (await first.ask('GET', '/readyz')).status !== 200);
  t.match((await first.ask('GET', '/metrics')).text, /ragen_checkpoint_failures_total [1-9]/);
  t.equal((await first.play(session_id, BATCH)).error, undefined);
  database.exec('ROLLBACK');
  await until(async () => (await first.ask('GET', '/readyz')).status === 200);
});
