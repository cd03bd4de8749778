import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { stringify } from 'yaml';
import { serve } from '../../rollout/server.test-data.ts';
import { GpuDevice } from '../../tensor/runtime/webgpu/device/device.ts';
import { latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { openRunFolder } from '../../training/run-folder/run-folder.ts';
import { tinySettings, trainTiny, weightsOf } from '../../training/runs.test-data.ts';
import { train } from './train.ts';

const TRAINER = fileURLToPath(new URL('../../main.ts', import.meta.url));
const LOSE_DEVICE = new URL('./lose-device.test-data.ts', import.meta.url).href;
const STEPS = 3;
/** The whole file takes seconds of processor time; a busy machine may need longer. */
const MAX_MS = 900_000;

const found = await GpuDevice.open();
found?.close();

t.test(
  'a run that loses its GPU says how to resume, and resumes from its last checkpoint with equal results',
  { timeout: MAX_MS, skip: found === null ? 'no GPU here that Dawn can use' : false },
  async t => {
    const [{ name: url }] = (await serve(t)).servers;
    const folder = t.testdir();
    const settings = tinySettings(url, folder, 'whole', {
      policy: { runtime: 'webgpu' },
      tags: { Lake: { max_turn: 1 } },
      rollout: { env_groups: 1, group_size: 2 },
      algorithm: { mini_batch_size: 2 },
      training: { steps: STEPS, checkpoint_every: 1 },
      validation: { episodes: 1 },
    });
    const whole = await trainTiny(settings);

    const config = join(folder, 'config.yaml');
    writeFileSync(config, stringify({ ...settings, run: { folder, name: 'shaken' } }));
    const path = join(folder, 'shaken');
    const child = spawn(process.execPath, ['--import', LOSE_DEVICE, TRAINER, 'train', config, '--quiet'], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, LOSE_DEVICE_AFTER: join(path, 'checkpoints', 'step-000001') },
    });
    t.teardown(() => child.kill('SIGKILL'));
    const said = text(child.stderr);
    const [status] = await once(child, 'exit');
    t.equal(status, 1);
    const message = await said;
    t.match(
      message,
      /the GPU was lost \(.*\); if it ran out of memory, lower policy\.micro_batch_tokens or rollout\.concurrency; then continue with: npm run trainer -- train --resume/,
    );
    t.equal(message.split('--resume').length, 2, 'it names the command once');
    const { run } = openRunFolder(path);
    const { step } = latestCheckpoint(run)!.state;
    t.equal(step, 1);

    const printed = t.capture(console, 'log');
    t.equal(await train(undefined, [], { resume: path, quiet: true }), 0);
    t.match(printed()[0].args[0], new RegExp(`at step ${STEPS} of ${STEPS}`));
    t.ok(weightsOf(run).equals(weightsOf(whole)), 'the weights of a run that lost nothing');
  },
);
