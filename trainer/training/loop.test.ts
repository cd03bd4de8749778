import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { validateConfig } from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';
import { ServerUnavailable } from '../client/retry.ts';
import { RunSettings } from '../config/settings.ts';
import { episodeOf, turnOf } from '../data/episodes.test-data.ts';
import type { UpdateBatch, UpdateSettings } from '../policy/policy.ts';
import type { GroupPlan } from '../rollout/tag.ts';
import { readJsonLines } from '../tracking/jsonlines.ts';
import { silentProgress } from '../tracking/progress.ts';
import { openTracker } from '../tracking/tracker.ts';
import { type LoopParts, trainLoop } from './loop.ts';
import { initialState, latestCheckpoint, readCheckpoint } from './run-folder/checkpoint.ts';
import { createRunFolder, type RunFolder } from './run-folder/run-folder.ts';
import type { PlayOptions, Rollouts } from './sources/episode-source.ts';
import { levelHash, validationGroups, validationPlan } from './validation.ts';

/** A policy of one number: each update moves it by the batch's advantages; its sum shows every batch it saw. */
class OneNumberPolicy {
  readonly version = 0;
  weight = 0;
  updates = 0;

  async update(batch: UpdateBatch, settings: UpdateSettings) {
    for (const sequence of batch.sequences) {
      this.weight = this.weight * 0.999 + settings.optimizer.learningRate * sequence.advantages[1];
    }
    this.updates++;
    return { 'actor/pg_loss': this.weight };
  }

  /** Scores change nothing: they are asked for the record alone. */
  async score(sequences: readonly { readonly tokenIds: Int32Array }[]) {
    return sequences.map(({ tokenIds: { length } }) => ({
      logProbs: new Float32Array(length),
      entropies: new Float32Array(length),
    }));
  }

  async scoreContinuations(): Promise<never> {
    throw new Error('nothing is to be scored here');
  }

  async decomposeGradients(): Promise<never> {
    throw new Error('no gradient is to be measured here');
  }

  holdingGeneration<T>(work: () => Promise<T>): Promise<T> {
    return work();
  }

  async save(folder: string) {
    mkdirSync(folder, { recursive: true });
    writeFileSync(
      join(folder, 'weight.json'),
      JSON.stringify({ weight: this.weight, updates: this.updates }),
    );
  }

  load(folder: string) {
    Object.assign(this, JSON.parse(readFileSync(join(folder, 'weight.json'), 'utf8')));
  }
}

/** Episodes with a reward that depends on the group's seed, the sampling seed and the policy. */
class CoinRollouts implements Rollouts {
  readonly policy: OneNumberPolicy;
  readonly played: { groups: readonly GroupPlan[]; options: PlayOptions }[] = [];
  /** Called at the start of each collection. */
  onPlay: (collection: number) => void = () => {};

  constructor(policy: OneNumberPolicy) {
    this.policy = policy;
  }

  async play(groups: readonly GroupPlan[], options: PlayOptions) {
    this.played.push({ groups, options });
    this.onPlay(this.played.length);
    options.signal.throwIfAborted();
    const rng = Random.fromSeed(options.seed);
    const episodes = groups.flatMap(group =>
      Array.from({ length: group.size }, (_, member) => {
        const reward = rng.float() + (group.seed % 7) + this.policy.weight > 3.5 ? 1 : 0;
        return episodeOf({
          episodeId: `${group.groupId}.${member}`,
          tag: group.tag,
          groupId: group.groupId,
          member,
          seed: group.seed,
          success: reward === 1,
          tokenIds: Int32Array.of(1, 2),
          lossMask: Uint8Array.of(0, 1),
          turns: [turnOf({ reward, tokens: [1, 2], state: `level ${group.seed % 40}` })],
        });
      }),
    );
    return { episodes, metrics: {} };
  }
}

const settingsIn = (folder: string, over: { [key: string]: Json } = {}) =>
  validateConfig(
    {
      run: { folder, name: 'run' },
      tags: { Lake: { env_id: 'FrozenLake-v0' } },
      train_tags: ['Lake'],
      policy: { value_head: false },
      rollout: { env_groups: 4, group_size: 4 },
      algorithm: { advantage: 'dr_grpo', mini_batch_size: 4 },
      optimizer: { learning_rate: 0.1 },
      training: { steps: 6, validate_every: 2, checkpoint_every: 3 },
      validation: { episodes: 5 },
      tracking: { tensorboard: false, trajectories_every: 4 },
      diagnostics: { collapse: { every: 0 } },
      ...over,
    },
    RunSettings,
  );

interface Started {
  readonly run: RunFolder;
  readonly policy: OneNumberPolicy;
  readonly rollouts: CoinRollouts;
  readonly parts: LoopParts;
}

function start(
  run: RunFolder,
  settings: RunSettings,
  doneSteps = -1,
  stop = new AbortController().signal,
  validated = doneSteps,
): Started {
  const policy = new OneNumberPolicy();
  const rollouts = new CoinRollouts(policy);
  const parts: LoopParts = {
    settings,
    run,
    policy,
    rollouts,
    tracker: openTracker(run, { step: doneSteps, validation: validated }, undefined),
    progress: silentProgress,
    parameterCount: 1,
    stop,
    actionTokens: new Map(),
    decode: ids => Array.from(ids).join(' '),
  };
  return { run, policy, rollouts, parts };
}

/** Rows without what depends on the clock. */
const timeless = (file: string) =>
  (readJsonLines(file) as { [name: string]: unknown }[])
    .map(row =>
      Object.fromEntries(
        Object.entries(row).filter(
          ([name]) => !/^(time|timing_s|perf|training\/seconds|\w+\/idle_ratio)/.test(name),
        ),
      ),
    )
    .filter(row => Object.keys(row).length > 1);

t.test('a run collects, learns, validates and checkpoints when it should', async t => {
  const settings = settingsIn(t.testdir());
  const { run, policy, rollouts, parts } = start(createRunFolder(settings, 'x'), settings);
  const { state, ended } = await trainLoop(parts, initialState(10_000));
  t.equal(ended, 'finished');
  t.match(state, {
    step: 6,
    updates: 24,
    nextSeed: 10_024,
    episodes: 96,
    sampledTokens: 96,
    trainedTokens: 96,
  });
  t.equal(policy.updates, 24);
  t.same(
    state.validations.map(record => record.step),
    [0, 2, 4, 6],
  );
  t.same(
    rollouts.played.map(({ groups }) => groups[0].seed),
    [123, 10_000, 10_004, 123, 10_008, 10_012, 123, 10_016, 10_020, 123],
  );
  const seeds = rollouts.played
    .filter(({ groups }) => groups[0].seed >= 10_000)
    .map(({ options }) => options.seed);
  t.equal(new Set(seeds).size, 6, 'every iteration has fresh draws');
  t.same(readdirSync(run.checkpoints).sort(), ['step-000003', 'step-000006']);
  t.same(readdirSync(run.trajectories).sort(), [
    'train-000004.jsonl',
    'validation-000000.jsonl',
    'validation-000002.jsonl',
    'validation-000004.jsonl',
    'validation-000006.jsonl',
  ]);
});

t.test('half, resume and half again equals the whole run', async t => {
  const folders = t.testdir({ whole: {}, parted: {} });
  const wholeSettings = settingsIn(join(folders, 'whole'));
  const whole = start(createRunFolder(wholeSettings, 'x'), wholeSettings);
  const wholeOutcome = await trainLoop(whole.parts, initialState(10_000));

  const settings = settingsIn(join(folders, 'parted'));
  const run = createRunFolder(settings, 'x');
  const stop = new AbortController();
  const first = start(run, settings, -1, stop.signal);
  first.rollouts.onPlay = collection => collection === 6 && stop.abort();
  const stopped = await trainLoop(first.parts, initialState(10_000));
  t.equal(stopped.ended, 'stopped');
  t.equal(stopped.state.step, 3, 'the iteration being collected was given up');

  const checkpoint = latestCheckpoint(run)!;
  const second = start(run, settings, checkpoint.state.step, undefined, 2);
  second.policy.load(checkpoint.policy);
  const outcome = await trainLoop(second.parts, checkpoint.state);
  t.equal(second.policy.weight, whole.policy.weight);
  t.same(
    { ...outcome.state, seconds: 0, validations: [] },
    { ...wholeOutcome.state, seconds: 0, validations: [] },
  );
  t.same(
    outcome.state.validations.map(record => record.metrics),
    wholeOutcome.state.validations.map(record => record.metrics),
  );
  t.same(timeless(run.metrics), timeless(whole.run.metrics));
});

t.test('a checkpoint is saved when asked, and the schedule changes while it trains', async t => {
  const settings = settingsIn(t.testdir());
  const run = createRunFolder(settings, 'run');
  const first = start(run, settings);
  const notes: string[] = [];
  const commands = {
    schedule: {},
    isAsked: false,
    takeCheckpointRequest() {
      const asked = commands.isAsked;
      commands.isAsked = false;
      return asked;
    },
  };
  first.rollouts.onPlay = collection => {
    // Collections: the validation before step 1, iteration 1.
    if (collection !== 2) return;
    commands.isAsked = true;
    commands.schedule = { stop_after: 5, validate_every: 4, checkpoint_every: 1000 };
  };
  const progress = { ...silentProgress, note: (text: string) => notes.push(text) };
  const { state, ended } = await trainLoop({ ...first.parts, progress, commands }, initialState(10_000));
  t.equal(ended, 'stop_after');
  t.equal(state.step, 5);
  t.same(
    state.validations.map(({ step }) => step),
    [0, 4, 5],
  );
  t.same(notes, ['the checkpoint of step 1 is saved']);
  t.same(
    readdirSync(run.checkpoints)
      .filter(name => name.startsWith('step-'))
      .map(name => Number(name.slice(5)))
      .sort(),
    [1, 5],
  );
});

t.test('a stop while validating resumes with that validation', async t => {
  const settings = settingsIn(t.testdir());
  const run = createRunFolder(settings, 'x');
  const stop = new AbortController();
  const first = start(run, settings, -1, stop.signal);
  first.rollouts.onPlay = collection => collection === 4 && stop.abort();
  const { state } = await trainLoop(first.parts, initialState(10_000));
  t.same([state.step, state.validations.length], [2, 1]);
  const second = start(run, settings, 2, undefined, 0);
  second.policy.load(latestCheckpoint(run)!.policy);
  const outcome = await trainLoop(second.parts, latestCheckpoint(run)!.state);
  t.same(
    outcome.state.validations.map(record => record.step),
    [0, 2, 4, 6],
  );
});

t.test('a learning rate of 0 leaves the policy unchanged', async t => {
  const settings = settingsIn(t.testdir(), { optimizer: { learning_rate: 0 } });
  const { policy, parts } = start(createRunFolder(settings, 'x'), settings);
  await trainLoop(parts, initialState(10_000));
  t.equal(policy.weight, 0);
  t.equal(policy.updates, 24);
});

t.test('episodes from validation levels are left out of training where asked', async t => {
  const validation = { episodes: 5, unseen_levels: true };
  const settings = settingsIn(t.testdir(), { validation, training: { steps: 2, validate_every: 2 } });
  const { run, rollouts, parts } = start(createRunFolder(settings, 'x'), settings);
  const hashes = validationGroups(validationPlan(settings)).map(({ seed }) =>
    levelHash({ environmentId: 'FrozenLake-v0', turns: [turnOf({ state: `level ${seed % 40}` })] }),
  );
  const { state } = await trainLoop(parts, { ...initialState(10_000), validationLevels: hashes });
  const seen = new Set([123, 124, 125, 126, 127].map(seed => seed % 40));
  const kept = rollouts.played
    .flatMap(({ groups }) => groups)
    .filter(({ seed }) => seed >= 10_000 && !seen.has(seed % 40));
  t.equal(state.episodes, 4 * kept.length);
  t.ok(kept.length < 8);
  const left = timeless(run.metrics).map(row => row['rollout/validation_levels_left_out'] ?? 0) as number[];
  t.equal(
    left.reduce((a, b) => a + b, 0),
    4 * (8 - kept.length),
  );
});

t.test('further sets have their own levels, draws and names, and leave training as it was', async t => {
  const sets = { greedy: { temperature: 0 }, other: { seed: 900, episodes: 3 } };
  const folder = t.testdir({ alone: {}, both: {} });
  const plain = settingsIn(join(folder, 'alone'));
  const settings = settingsIn(join(folder, 'both'), { validation: { ...plain.validation, sets } });
  const [alone, both] = [plain, settings].map(one => start(createRunFolder(one, 'x'), one));
  await trainLoop(alone.parts, initialState(10_000));
  const { state } = await trainLoop(both.parts, initialState(10_000));
  t.equal(both.policy.weight, alone.policy.weight);
  const [, greedy, other] = both.rollouts.played;
  t.same([greedy.options.sampling.temperature, greedy.groups[0].seed], [0, settings.validation.seed]);
  t.same([other.options.seed, other.groups.map(({ seed }) => seed)], [900, [900, 901, 902]]);
  const { metrics } = state.validations[0];
  for (const name of ['val-env/success', 'val-env/greedy/Lake/success_low', 'val-env/other/success'])
    t.type(metrics[name], 'number', name);
});

t.test('the best checkpoint is kept, and reaching the target ends the run', async t => {
  const training = { steps: 6, validate_every: 1, checkpoint_every: 6, keep_best: true };
  const settings = settingsIn(t.testdir(), { training: { ...training, early_stopping: { target: 1 } } });
  const { run, parts } = start(createRunFolder(settings, 'x'), settings);
  const outcome = await trainLoop(parts, initialState(10_000));
  const best = readCheckpoint(run.best).state;
  t.equal(best.monitor?.best.step, best.step);
  t.equal(
    best.monitor?.best.value,
    Math.max(...outcome.state.validations.map(({ metrics }) => metrics['val-env/success'])),
  );
  const reached = outcome.state.validations.some(({ metrics }) => metrics['val-env/success'] >= 1);
  t.equal(outcome.ended, reached ? 'target' : 'finished');
  t.notOk(latestCheckpoint(run)!.folder.endsWith('best'), 'a run never resumes from it');
  t.notOk(readdirSync(run.checkpoints).includes('best.partial'));
});

t.test('a run ends with a validation once its time is over, and continues with more time', async t => {
  const training = { steps: 6, validate_every: 50, checkpoint_every: 50, max_seconds: 30 };
  const settings = settingsIn(t.testdir(), { training });
  const run = createRunFolder(settings, 'x');
  const { parts } = start(run, settings);
  let now = 0;
  const clock = () => {
    now += 1;
    return now;
  };
  const outcome = await trainLoop({ ...parts, clock }, initialState(10_000));
  t.equal(outcome.ended, 'time_limit');
  t.ok(outcome.state.step > 0 && outcome.state.step < 6, String(outcome.state.step));
  t.equal(outcome.state.validations.at(-1)?.step, outcome.state.step);
  const more = { ...settings, training: { ...settings.training, max_seconds: null } };
  const { state } = latestCheckpoint(run)!;
  const second = start(run, more, state.step);
  t.equal((await trainLoop(second.parts, state)).ended, 'finished');
});

t.test('a fault in a collection ends the run with its error, not silently', async t => {
  const settings = settingsIn(t.testdir());
  const { rollouts, parts } = start(createRunFolder(settings, 'x'), settings);
  rollouts.onPlay = collection => {
    if (collection === 3) throw new Error('bad luck');
  };
  await t.rejects(trainLoop(parts, initialState(10_000)), /bad luck/);
});

t.test('environments that stay away end the run with a checkpoint of its last step', async t => {
  const settings = settingsIn(t.testdir());
  const { run, rollouts, policy, parts } = start(createRunFolder(settings, 'x'), settings);
  rollouts.onPlay = collection => {
    if (collection > 3) throw new ServerUnavailable('http://127.0.0.1:8080', 600_000, new Error('refused'));
  };
  await t.rejects(trainLoop(parts, initialState(10_000)), /was not available for 600\.0 s: refused/);
  t.match(latestCheckpoint(run)?.state, { step: 2, updates: policy.updates }, 'validation was due');
});
