import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { validateConfig } from '../../shared/config.ts';
import type { RunStatus } from '../../shared/run-folder/run-files.ts';
import { RunSettings } from '../config/settings.ts';
import { silentProgress } from './progress.ts';
import { RunStatusFile } from './run-status.ts';

const settings = validateConfig(
  {
    seed: 3,
    run: { name: 'lake' },
    tags: { Lake: { env_id: 'FrozenLake-v0', optimum_success: 0.9 } },
    train_tags: ['Lake'],
    training: { steps: 10 },
  },
  RunSettings,
);
const read = (file: string) => JSON.parse(readFileSync(file, 'utf8')) as RunStatus;

t.test('status.json has stage, step, time left and validations', async t => {
  const file = join(t.testdir(), 'status.json');
  let now = Date.UTC(2026, 0, 1);
  const status = new RunStatusFile(file, settings, silentProgress, [], () => now);
  t.match(read(file), {
    state: 'running',
    stage: 'starting',
    pid: process.pid,
    run: { name: 'lake', seed: 3, tags: [{ env_id: 'FrozenLake-v0', optimum: 0.9, random: null }] },
  });
  status.described({ Lake: { hole: 'Fell into a hole' } });
  status.opened(5);
  t.match(read(file).run, { parameters: 5, ends: { Lake: { hole: 'Fell into a hole' } } });
  const { progress, sink } = status;
  progress.begin('training', 10, 2);
  now += 6000;
  progress.update(4, {});
  t.match(read(file), { stage: 'training', step: 4, steps: 10, eta_s: 18 });
  sink.write(4, {
    'val-env/success': 0.5,
    'val-env/Lake/success_low': 0.4,
    'val-env/Lake/success_high': 0.6,
  });
  sink.write(4, { 'training/seconds': 12.4 });
  progress.note('server away');
  t.match(read(file), {
    seconds: 12,
    notes: [{ time: '2026-01-01T00:00:06.000Z', text: 'server away' }],
    validations: [{ step: 4, success: 0.5, low: 0.4, high: 0.6 }],
  });
  status.end('failed', new Error('no room'));
  t.match(read(file), { state: 'failed', eta_s: null, last_error: { text: 'no room' } });
});

t.test('many validations are thinned out, the last one stays', async t => {
  const file = join(t.testdir(), 'status.json');
  const status = new RunStatusFile(file, settings, silentProgress);
  for (let step = 1; step <= 200; step++) status.sink.write(step, { 'val-env/success': step / 200 });
  status.end('finished');
  const { validations } = read(file);
  t.ok(validations.length <= 65, String(validations.length));
  t.equal(validations.at(-1)?.step, 200);
});

t.test('a folder that cannot be written costs a note', async t => {
  const folder = t.testdir({ run: {} });
  const notes: string[] = [];
  const status = new RunStatusFile(join(folder, 'run', 'status.json'), settings, {
    ...silentProgress,
    warn: text => notes.push(text),
  });
  rmSync(join(folder, 'run'), { recursive: true });
  status.progress.begin('training', 10, 0);
  status.progress.begin('validating', 10, 0);
  status.end('finished');
  t.equal(notes.length, 1);
  t.match(notes[0], /status\.json cannot be written: .*; the run continues/);
});
