import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { validateConfig } from '../../../shared/config.ts';
import type { GroupsRow, TrajectoryRecord } from '../../../shared/run-folder/run-files.ts';
import { freePort } from '../../../test/free-port.test-data.ts';
import { RunSettings } from '../../config/settings.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import type { Progress } from '../../tracking/progress.ts';
import { trainRun } from '../../training/run.ts';
import { latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { createRunFolder, type RunFolder } from '../../training/run-folder/run-folder.ts';
import type { ChildProgram } from '../processes/child-program.ts';
import { startEnvServer } from '../processes/env-server-process.ts';
import { summaryLines } from './train.ts';

const STEPS = 4;
/** Time the server is away in the test that kills it. */
const AWAY_MS = 300;
/** The whole file takes seconds of processor time; a busy machine may need longer. */
const MAX_MS = 900_000;

const settingsFor = (folder: string, url: string) =>
  validateConfig(
    {
      seed: 3,
      run: { folder, name: 'run' },
      servers: [{ url }],
      tags: { Lake: { env_id: 'FrozenLake-v0', config: { success_rate: 0.8 }, max_turn: 3 } },
      train_tags: ['Lake'],
      policy: { hidden_size: 16, layers: 1, heads: 2, intermediate_size: 32, context: 100, workers: 1 },
      rollout: { env_groups: 8, group_size: 2, think: false, response_length: 6 },
      warm_start: { policy: 'random', episodes: 12, epochs: 1, batch_size: 8 },
      algorithm: { mini_batch_size: 8 },
      optimizer: { learning_rate: 1e-3, warmup_iterations: 2, decay: 'linear' },
      training: { steps: STEPS, validate_every: 2, checkpoint_every: 3 },
      validation: { episodes: 6, temperature: 1 },
      tracking: { trajectories_every: 1 },
    },
    RunSettings,
  );

t.test('a summary names the step of a validation that is older than the run', async t => {
  const tags = { Lake: { success: 0.22, low: 0.18, high: 0.25 } };
  const summary = (validated: number) => ({
    run: '/runs/a',
    ended: 'stopped' as const,
    step: 34,
    steps: 450,
    episodes: 1,
    sampled_tokens: 1,
    trained_tokens: 1,
    seconds: 1,
    before: { step: 0, success: 0.1, tags: { Lake: { success: 0.1, low: 0, high: 0.2 } } },
    after: { step: validated, success: 0.22, tags },
    references: {},
  });
  t.equal(
    summaryLines(summary(0), 'x')[1],
    'Lake: success 22 % when last validated, at step 0 (95 % interval 18 % to 25 %)',
  );
  t.equal(summaryLines(summary(34), 'x')[1], 'Lake: success 10 % → 22 % (95 % interval 18 % to 25 %)');
  const at = (step: number, earned: number) => {
    const result = { success: 0, low: 0, high: 0.1, return: earned };
    return { step, success: 0, tags: { Lake: result } };
  };
  const without = { ...summary(34), before: at(0, -16.54), after: at(34, 1234567) };
  t.equal(
    summaryLines(without, 'x')[1],
    'Lake: return -16.5 → 1230000',
    'the result where nothing is a success',
  );
});

interface Watched extends Progress {
  readonly notes: string[];
  /** The stage that is shown. */
  readonly stage: string;
}

/** Calls back after each training step and keeps the notes. */
const watching = (onStep: (step: number) => void = () => {}): Watched => {
  let stage = '';
  const notes: string[] = [];
  return {
    notes,
    get stage() {
      return stage;
    },
    begin(name) {
      stage = name;
    },
    update(done) {
      if (stage === 'training') onStep(done);
    },
    end() {
      stage = '';
    },
    note: text => notes.push(text),
    warn: text => notes.push(text),
  };
};

const never = new AbortController().signal;
const weightsOf = (run: RunFolder) => readFileSync(join(latestCheckpoint(run)!.policy, 'model.safetensors'));
const optimizerOf = (run: RunFolder) =>
  readFileSync(join(latestCheckpoint(run)!.policy, 'optimizer/optimizer.safetensors'));
/** Rows of the metrics without what depends on the clock. */
const timeless = (run: RunFolder) =>
  (readJsonLines(run.metrics) as { [name: string]: unknown }[])
    .map(row =>
      Object.entries(row).filter(
        ([name]) => !/^(time|timing|perf|rollouter|trainer|training\/sec)/.test(name),
      ),
    )
    .filter(row => row.length > 1)
    .map(row => Object.fromEntries(row));
const trajectories = (run: RunFolder, step: number) =>
  (readJsonLines(join(run.trajectories, `train-00000${step}.jsonl`)) as { server: string }[]).map(
    ({ server, ...rest }) => rest,
  );

t.test('runs against a server', { timeout: MAX_MS }, async t => {
  let { child, url } = await startEnvServer(['--port', String(await freePort())]);
  const port = new URL(url).port;
  t.teardown(async () => {
    child.kill();
    await child.ended;
  });
  const folders = t.testdir({ whole: {}, parted: {}, killed: {}, early: {}, warming: {} });
  const create = (name: string) => {
    const settings = settingsFor(join(folders, name), url);
    return { settings, run: createRunFolder(settings, name) };
  };

  const whole = create('whole');
  const summary = await trainRun(whole.run, whole.settings, watching(), never);

  await t.test('a run writes all that its folder promises', async t => {
    t.match(summary, { ended: 'finished', step: STEPS, episodes: STEPS * 16 });
    t.match(readFileSync(whole.run.report, 'utf8'), /finished after 4 of 4 steps/);
    t.same(JSON.parse(readFileSync(whole.run.summary, 'utf8')), summary);
    const rows = timeless(whole.run);
    t.same(
      rows.filter(row => 'train/success' in row).map(row => row.step),
      [1, 2, 3, 4],
    );
    t.same(
      rows.filter(row => 'val-env/success' in row).map(row => row.step),
      [0, 2, 4],
    );
    const first = rows.find(row => row.step === 1) as { [name: string]: number };
    t.ok(Math.abs(first['actor/pg_clipfrac']) < 1e-3);
  });

  await t.test('a run writes what pages about it show', async t => {
    const status = JSON.parse(readFileSync(whole.run.status, 'utf8'));
    t.match(status, { state: 'finished', step: STEPS, run: { name: 'run', tags: [{ tag: 'Lake' }] } });
    t.same(
      status.validations.map(({ step }: { step: number }) => step),
      [0, 2, 4],
    );
    const rows = readJsonLines(whole.run.groups) as GroupsRow[];
    t.same(
      rows.map(({ step, groups }) => [step, groups.length]),
      [1, 2, 3, 4].map(step => [step, 8]),
    );
    const texts = new Map(readJsonLines(whole.run.tokens) as [number, string][]);
    const episodes = trajectories(whole.run, 1) as unknown as TrajectoryRecord[];
    for (const { filter, turns, samples, final_structured } of episodes) {
      t.match(turns[0].structured, { grid: Array }, 'states are recorded');
      t.ok(final_structured);
      const [{ token_ids, mask, advantages, entropies, returns, values }] = samples;
      t.ok(token_ids.every(id => texts.has(id)));
      t.ok(entropies!.every((entropy, i) => (mask[i] ? entropy > 0 : entropy === 0)));
      if (filter!.kept) t.ok(advantages!.length === mask.length && returns && values);
      else t.notOk(advantages);
    }
  });

  await t.test('every metric is documented', async t => {
    const docs = ['metrics', 'algorithms', 'losses', 'diagnostics'].map(name =>
      readFileSync(new URL(`../../../docs/reference/${name}.md`, import.meta.url), 'utf8'),
    );
    const inline = docs.map(text => text.replaceAll(/^```[\s\S]*?^```/gm, ''));
    const code = inline.flatMap(text => [...text.matchAll(/`[^`]+`/g)].map(([quoted]) => quoted));
    const names = new Set(timeless(whole.run).flatMap(row => Object.keys(row)));
    for (const name of names) {
      if (/^rollout\/(chosen_)?in_group_/.test(name)) continue;
      const last = name.replace(/@\d+$/, '@k').split('/').at(-1)!;
      t.ok(
        code.some(quoted => quoted.includes(last)),
        name,
      );
    }
  });

  await t.test('half, resume and half again gives the same bits', async t => {
    const { run, settings } = create('parted');
    const stop = new AbortController();
    const half = watching(step => step === STEPS / 2 && stop.abort(new DOMException('stop', 'AbortError')));
    t.match(await trainRun(run, settings, half, stop.signal), { ended: 'stopped', step: STEPS / 2 });
    const rest = watching();
    t.match(await trainRun(run, settings, rest, never), {
      ended: 'finished',
      step: STEPS,
      episodes: STEPS * 16,
    });
    t.match(rest.notes[0], /resuming .* at step 2/);
    t.ok(weightsOf(run).equals(weightsOf(whole.run)), 'weights');
    t.ok(optimizerOf(run).equals(optimizerOf(whole.run)), 'moments');
    t.same(timeless(run), timeless(whole.run));
    for (const step of [3, 4]) t.same(trajectories(run, step), trajectories(whole.run, step));
  });

  await t.test('a server that is killed is waited for, and the run comes out the same', async t => {
    const { run, settings } = create('killed');
    let restarted: Promise<ChildProgram> | undefined;
    const progress = watching(step => {
      if (step !== 1 || restarted) return;
      child.kill();
      restarted = child.ended
        .then(() => new Promise(resolve => setTimeout(resolve, AWAY_MS)))
        .then(() => startEnvServer(['--port', port]))
        .then(started => started.child);
    });
    const result = await trainRun(run, settings, progress, never);
    child = await restarted!;
    t.match(result, { ended: 'finished', episodes: STEPS * 16 });
    t.match(progress.notes.join('\n'), /does not answer .*waiting for it for up to \d[\s\S]*is back after/);
    t.ok(weightsOf(run).equals(weightsOf(whole.run)), 'weights');
    t.same(trajectories(run, 2), trajectories(whole.run, 2));
  });

  await t.test('stopped before the first checkpoint, there is nothing to report', async t => {
    const { run, settings } = create('early');
    t.equal(await trainRun(run, settings, watching(), AbortSignal.abort()), undefined);
    t.equal(latestCheckpoint(run), undefined);
  });

  await t.test('stopped in the warm start, it shows no progress any more', async t => {
    const { run, settings } = create('warming');
    const control = new AbortController();
    const progress = watching();
    const stages: string[] = [];
    const stopping: Progress = {
      ...progress,
      begin(...args) {
        stages.push(args[0]);
        progress.begin(...args);
        control.abort();
      },
    };
    t.equal(await trainRun(run, settings, stopping, control.signal), undefined);
    t.same(stages, ['warm start']);
    t.equal(progress.stage, '', 'a bar left over would keep the program alive');
  });
});
