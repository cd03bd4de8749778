import t, { type Test } from 'tap';
import { movedClock, silentApp } from '../../test/app.test-data.ts';
import { testRegistry } from '../../test/environments.test-data.ts';
import { type EndedRow, MAX_REMEMBERED, SessionRows, UnwrittenEnds } from '../persistence/session-rows.ts';

/** Rows of ended sessions in memory until they are in the database. */

const ended = (id: string, forgetAt: number): EndedRow => ({
  id,
  owner: 'local',
  ending: 'session_closed',
  reason: null,
  forgetAt,
});
const idsOf = (ends: Iterable<EndedRow>) => [...ends].map(({ id }) => id);

t.test('sessions that the database never had are forgotten in time, those that it has stay', async t => {
  const ends = new UnwrittenEnds();
  ends.add(ended('stored', 10), true, 0);
  ends.add(ended('first', 10), false, 0);
  ends.add(ended('second', 20), false, 5);
  t.same(idsOf(ends), ['stored', 'first', 'second']);
  ends.add(ended('third', 30), false, 10);
  t.same(idsOf(ends), ['stored', 'second', 'third']);
  const written = [...ends];
  ends.add(ended('later', 40), true, 15);
  ends.written(written);
  t.same(idsOf(ends), ['later']);
});

t.test('of sessions that the database never had, as many are kept as answers know', async t => {
  const ends = new UnwrittenEnds();
  for (let i = 0; i < MAX_REMEMBERED + 2; i++) ends.add(ended(`s${i}`, 10), false, 0);
  const [oldest] = ends;
  t.same([ends.size, oldest.id], [MAX_REMEMBERED, 's2']);
});

/** A server that writes only at its end, and what it writes then of sessions that ended. */
async function unwriting(t: Test) {
  const data = t.testdir();
  let time = 1_000_000_000_000;
  const start = async () => {
    const app = await silentApp(
      t,
      { data, durability: 'none', goneSeconds: 60 },
      { registry: testRegistry(), clock: movedClock(() => time) },
    );
    const ask = (method: 'GET' | 'POST' | 'DELETE', id = '') => {
      const payload = method === 'POST' ? { env_id: 'test/Counter-v0' } : undefined;
      return app.ask(method, `/v1/sessions${id && `/${id}`}`, payload);
    };
    const open = async () => String((await ask('POST')).body.session_id);
    return { app, ask, open };
  };
  const write = SessionRows.prototype.write;
  t.teardown(() => {
    SessionRows.prototype.write = write;
  });
  const ends: string[] = [];
  SessionRows.prototype.write = function (changes, permitted) {
    const all = [...changes];
    for (const [name, row] of all) if (name === 'end') ends.push(row.id);
    write.call(this, all, permitted);
  };
  const wait = (seconds: number) => {
    time += 1000 * seconds;
  };
  return { start, wait, ends };
}

t.test('a server that writes nothing while it runs forgets sessions that ended', async t => {
  const { start, wait, ends } = await unwriting(t);
  const first = await start();
  const kept = await first.open();
  await first.app.server.close();

  const second = await start();
  t.equal((await second.ask('GET', kept)).status, 200);
  await second.ask('DELETE', kept);
  for (let i = 0; i < 5; i++) await second.ask('DELETE', await second.open());
  wait(61);
  const last = await second.open();
  await second.ask('DELETE', last);
  await second.app.server.close();
  t.same(ends, [kept, last], 'all but the one with a row to remove and those of the last minute');

  const third = await start();
  t.match(await third.ask('GET', last), { status: 410, body: { code: 'session_closed' } });
  t.match(await third.ask('GET', kept), { status: 404, body: { code: 'unknown_session' } });
});
