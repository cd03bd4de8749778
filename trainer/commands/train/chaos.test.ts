import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { stringify } from 'yaml';
import { freePort } from '../../../test/free-port.test-data.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { openRunFolder } from '../../training/run-folder/run-folder.ts';
import { type Row, tinySettings, trainTiny, weightsOf } from '../../training/runs.test-data.ts';
import { startEnvServer } from '../processes/env-server-process.ts';

const TRAINER = fileURLToPath(new URL('../../main.ts', import.meta.url));
const HALT = new URL('./halt-at-step.test-data.ts', import.meta.url).href;
const STEPS = 6;
/** Step at which the trainer is killed. */
const KILLED_AT = 3;
/** The whole file takes seconds of processor time; a busy machine may need longer. */
const MAX_MS = 900_000;

/** The command `train` in a separate process, which can be halted at a step. */
function trainer(t: Test, args: readonly string[], haltAt?: number): ChildProcess {
  const preload = haltAt === undefined ? [] : ['--import', HALT];
  const child = spawn(process.execPath, [...preload, TRAINER, 'train', ...args, '--quiet'], {
    stdio: 'ignore',
    env: { ...process.env, HALT_AT_STEP: String(haltAt) },
  });
  t.teardown(() => child.kill('SIGKILL'));
  return child;
}

const ended = async (child: ChildProcess) => child.exitCode ?? (await once(child, 'exit'))[0];

/** Rows of a run's metrics without what depends on the clock and on where its episodes were played. */
const learned = (file: string) =>
  (readJsonLines(file) as Row[])
    .map(row =>
      Object.fromEntries(
        Object.entries(row).filter(
          ([name]) => !/^(time|timing_s|perf|rollouter|trainer|training\/seconds)/.test(name),
        ),
      ),
    )
    .filter(row => Object.keys(row).length > 1);

t.test(
  'a server removed for good, another killed and restarted, the trainer killed and resumed: as if nothing had been',
  { timeout: MAX_MS },
  async t => {
    const folder = t.testdir();
    const open = async (port: string) => (await startEnvServer(['--port', port])).child;
    const [stays, goes] = [
      await startEnvServer(['--port', String(await freePort())]),
      await startEnvServer(['--port', '0']),
    ];
    let server = stays.child;
    t.teardown(async () => {
      server.kill();
      goes.child.kill();
      await Promise.all([server.ended, goes.child.ended]);
    });
    const config = join(folder, 'tiny.yaml');
    const settings = tinySettings(stays.url, folder, 'whole', {
      servers: [{ url: stays.url }, { url: goes.url }],
      rollout: { failover_s: 0.2 },
      training: { steps: STEPS, validate_every: 3, checkpoint_every: 2 },
      policy: { layers: 2, hidden_size: 32 },
    });
    writeFileSync(config, stringify(settings));
    const whole = await trainTiny(settings);

    const path = join(folder, 'shaken');
    const metrics = join(path, 'metrics.jsonl');
    const step = () =>
      (readJsonLines(metrics) as Row[]).filter(row => 'train/success' in row).at(-1)?.step ?? 0;
    const reach = async (wanted: number, child: ChildProcess) => {
      while (step() < wanted && child.exitCode === null) await sleep(30);
    };
    const first = trainer(t, [config, 'run.name=shaken'], KILLED_AT);
    await reach(1, first);
    goes.child.kill();
    await reach(KILLED_AT, first);
    first.kill('SIGKILL');
    await ended(first);
    t.equal(step(), KILLED_AT);

    const second = trainer(t, ['--resume', path]);
    await reach(4, second);
    server.kill();
    await server.ended;
    server = await open(new URL(stays.url).port);
    t.equal(await ended(second), 0);

    const { run } = openRunFolder(path);
    t.ok(weightsOf(run).equals(weightsOf(whole)), 'weights');
    t.same(learned(run.metrics), learned(whole.metrics), 'metrics, each step once');
  },
);
