import { type Profiler, Session } from 'node:inspector';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { testApp } from '../../test/app.test-data.ts';
import { dial, listening } from '../../test/wire.test-data.ts';
import type { Operation, Services } from '../operations/operation.ts';
import { OPERATIONS } from '../operations/table.ts';
import type { SessionManager } from '../sessions/manager.ts';
import { stagesOf } from './stages.ts';

const names = (operation: Operation, services: Partial<Services> = {}) =>
  stagesOf(operation, services as Services).map(({ name }) => name);

t.test('every operation passes the stages of its kind, in one order', async t => {
  for (const operation of OPERATIONS) {
    const { target, keyed, name } = operation;
    const wanted =
      target === 'session'
        ? ['admit', 'locate', 'record', 'budget', ...(keyed ? ['once'] : []), 'perform']
        : [
            'admit',
            'resume',
            'recordOnServer',
            'budget',
            ...(keyed ? ['onceForClient'] : []),
            'performOnServer',
          ];
    t.same(names(operation), wanted, name);
    const all = names(operation, { tracing: {} as never, shared: {} as never });
    t.same(all, ['trace', 'admit', 'share', ...wanted.slice(1)], `${name}, traced, in a shared store`);
  }
});

const SERVER = pathToFileURL(`${import.meta.dirname}/../`).href;
/** The environment itself. */
const ENVIRONMENT = /^(?:environments|wrappers)\//;

/** Repetitions of a step: work that the server does now and then is not found each time. */
const TIMES = 5;

/** The files of the server in which a function runs whenever something is done, besides those of the environment. */
async function filesOf(work: () => Promise<unknown>): Promise<string[]> {
  let files = await filesOfOne(work);
  for (let n = 1; n < TIMES; n++) {
    const more = new Set(await filesOfOne(work));
    files = files.filter(file => more.has(file));
  }
  return files;
}

async function filesOfOne(work: () => Promise<unknown>): Promise<string[]> {
  const inspector = new Session();
  inspector.connect();
  let covered: readonly Profiler.ScriptCoverage[] = [];
  // These calls are done at once, so that no timer of the server comes between them and the work.
  const take = () =>
    inspector.post('Profiler.takePreciseCoverage', (error, { result }) => {
      if (error) throw error;
      covered = result;
    });
  inspector.post('Profiler.enable');
  inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  take();
  await work();
  take();
  inspector.disconnect();
  return covered
    .filter(({ functions }) => functions.some(({ ranges }) => ranges.some(({ count }) => count > 0)))
    .filter(({ url }) => url.startsWith(SERVER) && !url.endsWith('.test.ts'))
    .map(({ url }) => url.slice(SERVER.length))
    .filter(file => !ENVIRONMENT.test(file))
    .sort();
}

/** The server looks for expired sessions every second, and on a busy machine no step is quicker. */
function withoutSweeps(sessions: SessionManager): void {
  sessions.sweep = () => undefined;
}

/** Steps before the one that is looked at: its state is not measured again for a while. */
const WARM_UP = 20;
/** Through these a step passes over every transport; in order, from the transport to the environment. */
const PATH = [
  'stages/dispatcher.ts',
  'stages/stages.ts',
  'operations/sessions/step.ts',
  'sessions/session.ts',
  'sessions/episodes/live-episode.ts',
];
/** Files with parts that these ask, and that do not pass the call on. */
const ASKED = [
  'operations/validation.ts',
  'scheduling/fair-scheduler.ts',
  'sessions/episodes/action-log.ts',
  'sessions/episodes/variant.ts',
  'sessions/limits/budgets.ts',
  'sessions/limits/server-clock.ts',
  'sessions/manager.ts',
];

t.test('a step over REST crosses these files and no others', async t => {
  const { ask, open, sessions } = await testApp(t);
  withoutSweeps(sessions);
  const path = `/v1/sessions/${await open({ config: { preset: 'long' } })}/step`;
  const step = () => ask('POST', path, { action: 'add' });
  for (let n = 0; n < WARM_UP; n++) await step();
  const transport = [
    'transports/access/auth.ts',
    'transports/http-server.ts',
    'transports/monitoring/trace-requests.ts',
    'transports/replies/content.ts',
    'transports/rest/paced-requests.ts',
    'transports/rest/rest.ts',
  ];
  t.same(await filesOf(step), [...PATH, ...ASKED, ...transport].sort());
});

t.test('a step over a WebSocket crosses these files and no others', async t => {
  const app = await listening(t);
  withoutSweeps(app.sessions);
  const { send, next } = await dial(t, app, '/v1/ws');
  const session_id = await app.open({ config: { preset: 'long' } });
  const step = async () => {
    send({ id: 1, op: 'step', session_id, action: 'add' });
    t.match(await next(), { ok: true });
  };
  for (let n = 0; n < WARM_UP; n++) await step();
  const transport = [
    'stages/batch.ts',
    'transports/replies/content.ts',
    'transports/websocket/paced-websocket.ts',
    'transports/websocket/protocol.ts',
    'transports/websocket/websocket.ts',
  ];
  t.same(await filesOf(step), [...PATH, ...ASKED, ...transport].sort());
});
