import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { createApp } from '../../env-server/app.ts';
import type { RunStatus } from '../../shared/run-folder/run-files.ts';
import {
  accessibilityProblems,
  PHONE_AND_SCREEN,
  seeLooks,
  skip,
} from '../../site/playground/browser.test-data.ts';
import { writeSampleRun } from '../../site/server/sample-runs.test-data.ts';
import { silentProgress } from '../tracking/progress.ts';
import { RunControl } from '../training/run-folder/run-control.ts';
import { openPage, serveDashboard } from './dashboard.test-data.ts';
import { createDashboard } from './server.ts';

const TOKEN = 'the-token-of-the-dashboard';
const STARTED = '2026-01-01T00:00:00.000Z';
const command = (id: string, more: object = {}) => ({ id, session: STARTED, action: 'checkpoint', ...more });

/** A run in progress, one that ended, and a dashboard that takes commands. */
async function controlled(t: Parameters<typeof serveDashboard>[0]) {
  const runs = t.testdir({});
  const running = { state: 'running', stage: 'training', pid: process.pid } as const;
  const folder = writeSampleRun(runs, 'live', {
    status: { ...running, updated_at: new Date().toISOString() },
  });
  writeSampleRun(runs, 'done');
  const app = await createDashboard({ runs, host: '127.0.0.1', allowedHosts: '', controlToken: TOKEN });
  t.teardown(() => app.close());
  const send = (
    payload: object | string,
    { id = 'live', token = TOKEN }: { id?: string; token?: string } = {},
  ) =>
    app.inject({
      method: 'POST',
      url: `/runs/api/control?id=${id}`,
      payload,
      headers: {
        host: '127.0.0.1',
        'content-type': 'application/json',
        ...(token === '' ? {} : { authorization: `Bearer ${token}` }),
      },
    });
  return { runs, folder, app, send };
}

t.test('a command needs the token, a known form, and a run in progress', async t => {
  const { folder, send } = await controlled(t);
  const replies = async (...args: Parameters<typeof send>) => {
    const { statusCode, body } = await send(...args);
    return [statusCode, body === '' ? '' : (JSON.parse(body) as { detail: string }).detail];
  };
  for (const token of ['', 'x', `${TOKEN}x`, TOKEN.slice(1)])
    t.match(await replies(command('checkpoint-1'), { token }), [
      401,
      /needs the token that the dashboard printed/,
    ]);
  t.equal((await send('{', { token: '' })).statusCode, 401, 'before the body is read');
  t.notOk(existsSync(join(folder, 'control')), 'nothing was written');
  t.match(await replies({}), [400, /`id` must be 8 to 64 letters/]);
  t.match(await replies(command('../../evil')), [400, /`id` must be/]);
  t.match(await replies(command('checkpoint-1', { action: 'kill' })), [400, /`action` must be one of/]);
  t.match(await replies(command('checkpoint-1', { more: 1 })), [400, /`more`: unknown key/]);
  t.match(await replies(command('schedule-1', { action: 'schedule', schedule: {} })), [
    400,
    /must have some of/,
  ]);
  t.match(await replies(command('schedule-1', { action: 'schedule', schedule: { steps: 5 } })), [
    400,
    /unknown key/,
  ]);
  t.match(await replies(command('checkpoint-1', { schedule: { stop_after: 1 } })), [
    400,
    /belongs to the action/,
  ]);
  t.match(await replies(command('checkpoint-1', { action: 'x'.repeat(5000) })), [
    413,
    'the body is larger than the 2048 bytes that this route takes',
  ]);
  t.match(await replies('{'), [400, /JSON/]);
  t.match(await replies(command('checkpoint-1'), { id: 'none' }), [404, /no such run/]);
  t.match(await replies(command('checkpoint-1'), { id: '..' }), [404, /no such run/]);
  t.match(await replies(command('checkpoint-1'), { id: 'done' }), [409, /the run is not in progress/]);
  t.match(await replies(command('checkpoint-1', { session: '2025-01-01T00:00:00.000Z' })), [
    409,
    /is for the session of 2025/,
  ]);
  t.same(await replies(command('checkpoint-1')), [204, '']);
  t.same(
    JSON.parse(readFileSync(join(folder, 'control/checkpoint-1.json'), 'utf8')),
    command('checkpoint-1'),
  );
});

t.test('a command is passed on once; a trainer that reads none gets no more than 16', async t => {
  const { folder, send } = await controlled(t);
  const control = join(folder, 'control');
  t.equal((await send(command('checkpoint-1'))).statusCode, 204);
  t.match((await send(command('checkpoint-1'))).json(), { status: 409, detail: /was sent before/ });
  rmSync(join(control, 'checkpoint-1.json'));
  t.match((await send(command('checkpoint-1'))).json(), { status: 409, detail: /was sent before/ });
  for (let i = 0; i < 16; i++) t.equal((await send(command(`checkpoint-2${i}`))).statusCode, 204);
  t.match((await send(command('checkpoint-3'))).json(), {
    status: 409,
    detail: /16 commands wait for the trainer already/,
  });
  t.equal(readdirSync(control).length, 16, 'and no leftovers');
});

t.test('a folder that cannot be written to is reported, a link is not followed', async t => {
  const { runs, folder, send } = await controlled(t);
  mkdirSync(join(runs, 'elsewhere'));
  symlinkSync(join(runs, 'elsewhere'), join(folder, 'control'));
  t.match((await send(command('checkpoint-1'))).json(), {
    status: 409,
    detail: /cannot be written to: ENOTDIR/,
  });
  t.same(readdirSync(join(runs, 'elsewhere')), []);
  rmSync(join(folder, 'control'));
  writeFileSync(join(folder, 'control'), '');
  t.match((await send(command('checkpoint-1'))).json(), {
    status: 409,
    detail: /cannot be written to: ENOTDIR/,
  });
  rmSync(join(folder, 'control'));
  t.equal((await send(command('checkpoint-1'))).statusCode, 204, 'what was refused may be sent again');
});

t.test('an environment server takes commands from administrators alone, and none without tokens', async t => {
  const { runs } = await controlled(t);
  const tokens = JSON.stringify([
    {
      name: 'ann',
      sha256: '2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b',
      scopes: ['play'],
    },
    {
      name: 'root',
      sha256: '4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2',
      scopes: ['admin'],
    },
  ]);
  const { server } = await createApp({ logLevel: 'silent', runs, tokens });
  t.teardown(() => server.close());
  const send = (authorization?: string, id = 'checkpoint-1') =>
    server.inject({
      method: 'POST',
      url: '/runs/api/control?id=live',
      payload: command(id),
      headers: { host: '127.0.0.1', ...(authorization ? { authorization } : {}) },
    });
  t.equal((await send()).statusCode, 401);
  t.equal((await send('Bearer wrong')).statusCode, 401);
  t.match((await send('Bearer secret')).json(), {
    status: 403,
    detail: /needs a token with the scope admin/,
  });
  t.equal((await send('Bearer root')).statusCode, 204);
  const open = await createApp({ logLevel: 'silent', runs });
  t.teardown(() => open.server.close());
  const headers = { host: '127.0.0.1' };
  t.equal(
    (
      await open.server.inject({
        method: 'POST',
        url: '/runs/api/control?id=live',
        payload: command('stop-00001'),
        headers,
      })
    ).statusCode,
    404,
  );
  t.notOk((await open.server.inject({ url: '/runs/site.json', headers })).json().control);
});

t.test('buttons on the page of a run reach its trainer, which notes what it does', { skip }, async t => {
  const { runs, folder } = await controlled(t);
  const status = JSON.parse(readFileSync(join(folder, 'status.json'), 'utf8')) as RunStatus;
  const notes: { time: string; text: string }[] = [];
  const note = (text: string) => {
    notes.push({ time: new Date().toISOString(), text });
    writeFileSync(
      join(folder, 'status.json'),
      JSON.stringify({ ...status, updated_at: new Date().toISOString(), notes }),
    );
  };
  const control = new RunControl(folder, STARTED, { ...silentProgress, note });
  t.teardown(() => control[Symbol.dispose]());
  const origin = await serveDashboard(t, { runs, controlToken: TOKEN });
  const page = await openPage(t, `${origin}/runs/#/run/live`);
  const panel = page.locator('.panel', { hasText: 'Control the trainer' });
  await panel.getByRole('button', { name: 'Save a checkpoint' }).click();
  await panel.getByRole('alert').getByText('needs the token that the dashboard printed').waitFor();
  t.same(await accessibilityProblems(page), []);
  await panel.getByLabel('Token').fill(TOKEN);
  await panel.getByRole('button', { name: 'Use it' }).click();
  await panel.getByRole('button', { name: 'Save a checkpoint' }).click();
  await panel.getByText('Sent.').waitFor();
  await page.getByText('asked by a page: a checkpoint after this step').waitFor();
  t.ok(control.takeCheckpointRequest());
  await panel.getByRole('button', { name: 'Apply' }).click();
  await panel.getByRole('alert').getByText('Write a number').waitFor();
  await panel.getByLabel('Validate every').fill('7');
  await panel.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('until the run ends: training.validate_every=7').waitFor();
  t.same(control.schedule, { validate_every: 7 });
  await panel.getByRole('button', { name: 'Stop', exact: true }).click();
  t.notOk(control.signal.aborted);
  await panel.getByRole('button', { name: 'Press again to stop' }).click();
  await page.getByText('stopping with a checkpoint').waitFor();
  t.ok(control.signal.aborted);
  await seeLooks(t, page, 'control', PHONE_AND_SCREEN);
  await page.goto(`${origin}/runs/?token=${TOKEN}#/run/done`);
  await page.getByText('Success went from').waitFor();
  t.notMatch(page.url(), /token/, 'the token leaves the address');
  t.equal(await page.getByText('Control the trainer').count(), 0, 'a run that ended has no buttons');
});
