import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { stringify } from 'yaml';
import { createApp } from '../../../env-server/app.ts';
import { smallDisk } from '../../../env-server/persistence/small-disk.test-data.ts';
import { ServerProblem, ServerUnavailable } from '../../client/retry.ts';
import { loadRunSettings } from '../../config/load.ts';
import { latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { createRunFolder, openRunFolder } from '../../training/run-folder/run-folder.ts';
import { tinySettings, trainTiny } from '../../training/runs.test-data.ts';
import { STARTED_BY_VARIABLE } from '../processes/child-program.ts';
import { commandOf, resumeCommand, runFailure } from '../processes/trainer-process.ts';
import { train } from './train.ts';

const { server } = await createApp({ logLevel: 'silent' });
const url = await server.listen({ host: '127.0.0.1', port: 0 });
t.teardown(() => server.close());

const LOUDLESS = { quiet: true };
/** Room for the files of a run, not for a checkpoint. */
const SMALL_DISK_BYTES = 96 * 1024;

/** Settings as a config file. */
function configOf(folder: string, settings: object): string {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, 'tiny.yaml');
  writeFileSync(file, stringify(settings));
  return file;
}

t.test('a full disk is named with the run and the command that continues', async t => {
  const disk = smallDisk(t, SMALL_DISK_BYTES);
  if (disk === undefined) return t.comment('no small disk: this process may not mount one');
  const config = configOf(t.testdir(), tinySettings(url, disk, 'full'));
  const error = (await train(config, [], LOUDLESS).catch(error => error)) as Error;
  const folder = join(disk, 'full');
  t.match(error.message, /no room is left on the disk of \S*full/);
  t.match(error.message, /ENOSPC/);
  const goesOn = existsSync(folder) ? resumeCommand(folder) : commandOf('train', [config]);
  t.ok(error.message.endsWith(`make room; then continue with: ${goesOn}`), error.message);
});

t.test('a run folder that cannot be made is named with what to set', { timeout: 10_000 }, async t => {
  for (const folder of ['/proc/x', '/proc/x/y']) {
    const settings = tinySettings(url, folder, 'never');
    t.throws(() => createRunFolder(settings, 'tiny'), /cannot make the folder \/proc\/x.*run\.folder=runs/);
  }
  const file = join(t.testdir({ file: '' }), 'file');
  t.throws(() => createRunFolder(tinySettings(url, file, 'a'), 'tiny'), /ENOTDIR.*run\.folder/);
  const disk = smallDisk(t, SMALL_DISK_BYTES);
  if (disk === undefined) return t.comment('no read-only file system: this process may not mount one');
  spawnSync('mount', ['-o', 'remount,ro', disk]);
  for (const folder of [disk, join(disk, 'runs')]) {
    const settings = tinySettings(url, folder, 'never');
    t.throws(() => createRunFolder(settings, 'tiny'), /(EROFS|read-only).*run\.folder/);
  }
});

t.test(
  'a damaged newest checkpoint is named with the one before it, from which the run continues',
  async t => {
    const every = { training: { steps: 2, checkpoint_every: 1, keep_checkpoints: 3 } };
    const files = { policy: ['policy', 'model.safetensors'], state: ['trainer.json'] };
    for (const [name, path] of Object.entries(files)) {
      const run = await trainTiny(tinySettings(url, t.testdir(), `damaged-${name}`, every));
      const { folder } = latestCheckpoint(run)!;
      truncateSync(join(folder, ...path), 20);
      const resumed = () => train(undefined, ['training.steps=3'], { ...LOUDLESS, resume: run.path });
      const error = (await resumed().catch(error => error)) as Error;
      t.match(
        error.message,
        /the newest checkpoint \S*step-000002 is damaged \(.*(safetensors|trainer\.json)/,
      );
      t.match(error.message, /the one before it is \S*step-000001/);
      t.ok(error.message.includes(`mv ${folder} ${folder}.damaged`), error.message);
      t.ok(error.message.endsWith(`continue with: ${resumeCommand(run.path, ['training.steps=3'])}`));
      t.ok(readFileSync(run.log, 'utf8').endsWith(`Z ${error.message}\n`), 'the log has it, too');
      renameSync(folder, `${folder}.damaged`);
      t.equal(await resumed(), 0);
      t.equal(latestCheckpoint(run)!.state.step, 3);
      const log = readFileSync(run.log, 'utf8');
      t.ok(log.includes(error.message), 'a resumed run appends to it');
      t.match(log, /Z resuming \S+ at step 1\n.*Z training 3\/3 · .*Z finished at step 3 of 3/s);
    }
  },
);

t.test('faults of a file name its path, a lost registration what to do, others only the command', async t => {
  const run = { path: '/runs/a b' };
  const command = resumeCommand(run.path);
  t.match(command, /train --resume '\/runs\/a b'$/);
  const system = (code: string, path?: string) => Object.assign(new Error(`${code}: reason`), { code, path });
  for (const [error, message] of [
    [
      system('EROFS', '/runs/a b/metrics.jsonl'),
      /^\/runs\/a b\/metrics\.jsonl cannot be used \(EROFS: reason\)/,
    ],
    [system('ENOENT'), /^\/runs\/a b cannot be used/],
    [
      new Error('outer', { cause: system('ENOSPC') }),
      /^no room is left on the disk of \/runs\/a b \(outer\)/,
    ],
    [new Error('no server'), /^no server; then continue with/],
    [
      new ServerUnavailable('http://lake', 600_000, new Error('refused')),
      /^http:\/\/lake was not available for 600\.0 s: refused\. Start it again; then continue with/,
    ],
    [
      new ServerProblem('http://lake', 'create', {
        type: 'about:blank',
        title: 'Unknown environment',
        status: 404,
        code: 'unknown_environment',
        detail: 'there is none',
        retryable: false,
        trace_id: '',
      }),
      /there is none; register it again \(a server without --data keeps no registrations\); then continue with/,
    ],
  ] as const) {
    const { message: shown } = runFailure(error, run, command);
    t.match(shown, message);
    t.ok(shown.endsWith(`continue with: ${command}`));
  }
  const stop = new DOMException('stop', 'AbortError');
  t.equal(runFailure(stop, run, command), stop);
});

t.test('a run that another program started continues with the command of that program', async t => {
  process.env[STARTED_BY_VARIABLE] = 'npm start';
  t.teardown(() => {
    delete process.env[STARTED_BY_VARIABLE];
  });
  t.equal(resumeCommand('/runs/a', ['training.steps=3']), 'npm start');
});

t.test('servers are named by their addresses alone, on the command line and in files', async t => {
  const folder = t.testdir();
  const { servers: _, ...settings } = tinySettings('http://a:1', folder, 'a');
  const plain = configOf(folder, settings);
  const short = loadRunSettings(plain, ['servers=[http://host:8080, {url: https://other, weight: 2}]']);
  t.match(short.servers, [
    { url: 'http://host:8080', weight: 1, tag_weights: {}, token: null },
    { url: 'https://other', weight: 2 },
  ]);
  const inFile = configOf(join(folder, 'list'), { ...settings, servers: ['http://host:8080'] });
  t.same(loadRunSettings(inFile).servers, [short.servers[0]]);
  t.throws(() => loadRunSettings(plain, ['servers=[host:8080]']), /servers\.0/);
  const run = createRunFolder(short, 'tiny');
  t.same(openRunFolder(run.path).settings.servers, short.servers);
});

t.test('a run without a name has a report with its folder as title', async t => {
  const settings = tinySettings(url, t.testdir(), 'x', { training: { steps: 0 } });
  const run = await trainTiny({ ...settings, run: { ...settings.run, name: null } });
  t.match(readFileSync(run.report, 'utf8'), /^# tiny-001\n/);
});
