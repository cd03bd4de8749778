import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { ControlCommand } from '../../../shared/run-folder/control.ts';
import { RunControl } from './run-control.ts';

const SESSION = '2026-11-26T10:00:00.000Z';
const command = (
  id: string,
  action: ControlCommand['action'],
  more: Partial<ControlCommand> = {},
): ControlCommand => ({
  id,
  session: SESSION,
  action,
  ...more,
});

function controlled(path: string) {
  const notes: string[] = [];
  const warnings: string[] = [];
  const control = new RunControl(path, SESSION, {
    note: text => notes.push(text),
    warn: text => warnings.push(text),
  });
  const send = (value: ControlCommand, name = value.id) =>
    writeFileSync(join(path, 'control', `${name}.json`), JSON.stringify(value));
  return { control, notes, warnings, send };
}

t.test('commands are carried out once, and removed', async t => {
  const path = t.testdir({ control: {} });
  const { control, notes, send } = controlled(path);
  t.teardown(() => control[Symbol.dispose]());
  send(command('checkpoint-1', 'checkpoint'));
  send(command('schedule-1', 'schedule', { schedule: { validate_every: 3 } }));
  control.look();
  t.same([control.takeCheckpointRequest(), control.takeCheckpointRequest()], [true, false]);
  send(command('schedule-2', 'schedule', { schedule: { stop_after: 9, validate_every: 4 } }));
  control.look();
  t.same(control.schedule, { validate_every: 4, stop_after: 9 });
  t.same(readdirSync(join(path, 'control')), []);
  send(command('checkpoint-1', 'checkpoint'));
  control.look();
  t.equal(control.takeCheckpointRequest(), false, 'a replay does nothing');
  t.equal(control.signal.aborted, false);
  send(command('stop-0001', 'stop'));
  control.look();
  t.match(control.signal, { aborted: true, reason: { name: 'AbortError' } });
  t.equal(notes.length, 4);
});

t.test('a command for an earlier session is removed and does nothing', async t => {
  const path = t.testdir({ control: {} });
  const { control, notes, send } = controlled(path);
  t.teardown(() => control[Symbol.dispose]());
  send(command('stop-0001', 'stop', { session: '2026-11-25T10:00:00.000Z' }));
  control.look();
  t.same([control.signal.aborted, notes.length, readdirSync(join(path, 'control'))], [false, 0, []]);
});

t.test('files that are no commands cost a warning each', async t => {
  const path = t.testdir({ control: { 'notes.txt': '', 'short.json': '{}', 'half-written.partial': '{' } });
  const folder = join(path, 'control');
  const { control, warnings, send } = controlled(path);
  t.teardown(() => control[Symbol.dispose]());
  writeFileSync(join(folder, 'garbage-1.json'), '{');
  writeFileSync(join(folder, 'too-large1.json'), `{"id": "${'a'.repeat(5000)}"}`);
  symlinkSync('/etc/passwd', join(folder, 'link-0001.json'));
  mkdirSync(join(folder, 'folder-01.json'));
  execFileSync('mkfifo', [join(folder, 'pipe-0001.json')]);
  send(command('stop-0001', 'stop'), 'other-name');
  send({ ...command('unknown-1', 'stop'), action: 'reboot' as 'stop' });
  send(command('schedule-1', 'schedule', { schedule: { validate_every: -1 } }));
  control.look();
  control.look();
  t.equal(control.signal.aborted, false);
  t.equal(warnings.length, 8, 'once each');
  t.match(warnings.join('\n'), /folder-01\.json is not a command: it is not a regular file/);
  t.match(warnings.join('\n'), /link-0001\.json is not a command: ELOOP/);
  t.match(warnings.join('\n'), /too-large1\.json is not a command: it has more than 2048 bytes/);
  t.match(warnings.join('\n'), /other-name\.json is not a command: its `id` is stop-0001/);
  t.match(warnings.join('\n'), /`action` must be one of stop, checkpoint, schedule/);
  t.match(warnings.join('\n'), /`schedule.validate_every` must be a whole number from 1/);
  t.same(readdirSync(folder).sort(), ['folder-01.json', 'half-written.partial', 'notes.txt', 'short.json']);
  t.ok(existsSync('/etc/passwd'));
});

t.test('a run folder without the folder of commands has none, until one comes', async t => {
  const path = t.testdir({});
  const { control, send } = controlled(path);
  t.teardown(() => control[Symbol.dispose]());
  control.look();
  const alive = setInterval(() => {}, 1000);
  t.teardown(() => clearInterval(alive));
  mkdirSync(join(path, 'control'));
  send(command('stop-0001', 'stop'));
  await new Promise(done => control.signal.addEventListener('abort', done));
  t.ok(control.signal.aborted);
});
