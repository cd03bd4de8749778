import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { stringify } from 'yaml';
import { proxy } from '../../client/proxy.test-data.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { tinySettings } from '../../training/runs.test-data.ts';
import { type SweepOutcome, sweep } from './sweep.ts';

const MAIN = fileURLToPath(new URL('../../main.ts', import.meta.url));
const STEPS = 6;
/** The whole file takes seconds of processor time; a busy machine may need longer. */
const MAX_MS = 900_000;

t.test('a sweep that is stopped continues where it was', { timeout: MAX_MS }, async t => {
  const [server] = (await serve(t)).servers;
  const line = await proxy(t, server.name);
  const folder = t.testdir();
  const training = { steps: STEPS, validate_every: STEPS, checkpoint_every: 2 };
  const settings = tinySettings(line.url, folder, 'tiny', { training });
  writeFileSync(join(folder, 'tiny.yaml'), stringify(settings));
  const file = join(folder, 'two.yaml');
  const sweepOf = (more: object) => ({
    config: 'tiny.yaml',
    variants: {
      a: [],
      b: ['recipe=rloo', 'rollout.env_groups=4', 'rollout.group_size=4', 'algorithm.mini_batch_size=8'],
    },
    ...more,
  });
  writeFileSync(file, stringify(sweepOf({})));
  const start = (): ChildProcess => {
    const child = spawn(process.execPath, [MAIN, 'sweep', file, '--quiet'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    t.teardown(() => child.kill('SIGKILL'));
    return child;
  };
  const ended = async (child: ChildProcess) => {
    let said = '';
    for (const stream of [child.stdout!, child.stderr!]) {
      stream.on('data', text => {
        said += text;
      });
    }
    const [status] = await once(child, 'exit');
    return { status, said };
  };
  const summary = (run: string) => join(folder, 'two', run, 'summary.json');
  const outcomes = () =>
    JSON.parse(readFileSync(join(folder, 'two', 'sweep.json'), 'utf8')) as SweepOutcome[];

  const first = start();
  const firstEnd = ended(first);
  const second = join(folder, 'two', 'b-seed-0', 'metrics.jsonl');
  while (!existsSync(second) && first.exitCode === null) await sleep(5);
  // However late the request to stop arrives, the run does not end before it.
  line.silent = true;
  first.kill('SIGINT');
  t.equal((await firstEnd).status, 130);
  t.same(
    outcomes().map(({ name, status }) => [name, status]),
    [
      ['a-seed-0', 'done'],
      ['b-seed-0', 'waiting'],
    ],
  );
  line.silent = false;
  const done = readFileSync(summary('a-seed-0'));

  const { status, said } = await ended(start());
  t.equal(status, 0);
  t.match(said, /2 of 2 runs done/);
  t.match(said, /\| b \| Lake \| \d/);
  t.ok(readFileSync(summary('a-seed-0')).equals(done), 'what was done is left alone');
  t.match(JSON.parse(readFileSync(summary('b-seed-0'), 'utf8')), {
    ended: 'finished',
    step: STEPS,
    episodes: STEPS * 16,
  });

  writeFileSync(file, stringify(sweepOf({ overrides: ['optimizer.learning_rate=0.5'] })));
  await t.rejects(sweep(file, [], { quiet: true }), /a-seed-0 holds a run with other settings/);
});
