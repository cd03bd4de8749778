import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { stringify } from 'yaml';
import { validateConfig } from '../../../shared/config.ts';
import { demonstrations } from '../../commands/demonstrations.ts';
import { checkRunSettings } from '../../config/load.ts';
import { RunSettings } from '../../config/settings.ts';
import { LocalPolicy } from '../../policy/local-policy.ts';
import type { UpdateBatch, UpdateSettings } from '../../policy/policy.ts';
import { Collector } from '../../rollout/collection/collector.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { type Progress, silentProgress } from '../../tracking/progress.ts';
import { trainRun } from '../run.ts';
import { latestCheckpoint } from '../run-folder/checkpoint.ts';
import { createRunFolder, type RunFolder } from '../run-folder/run-folder.ts';
import { MAX_MS, type Row, tinySettings, trainTiny, weightsOf } from '../runs.test-data.ts';
import { readWarmStart } from './warm-start.ts';

const QWEN = fileURLToPath(new URL('../../../test/golden/models/qwen2-tiny', import.meta.url));

const sftRows = (file: string) => (readJsonLines(file) as Row[]).filter(row => 'sft/epoch' in row);

for (const learn of ['responses', 'everything'] as const) {
  t.test(
    `demonstrations from a file teach what demonstrations at the table teach: ${learn}`,
    { timeout: MAX_MS },
    async t => {
      const [server] = (await serve(t)).servers;
      const folder = t.testdir();
      const warm_start = {
        policy: 'optimal',
        episodes: 20,
        epochs: 3,
        batch_size: 4,
        random_turns: 0.2,
        learn,
      };
      const sft = { training: { steps: 0 } };
      const played = tinySettings(server.name, folder, 'played', { ...sft, warm_start });
      const run = await trainTiny(played);
      const losses = sftRows(run.metrics).map(row => row['sft/loss']);
      t.equal(losses.length, 3);
      t.ok(losses[2] < losses[0]);

      const out = join(folder, 'demonstrations.jsonl');
      writeFileSync(join(folder, 'config.yaml'), stringify(played));
      t.equal(await demonstrations(join(folder, 'config.yaml'), [], { out, quiet: true }), 0);
      const nowhere = { out: join(folder, 'none', 'out.jsonl'), quiet: true };
      await t.rejects(
        demonstrations(join(folder, 'config.yaml'), ['servers=[{url: "http://127.0.0.1:1"}]'], nowhere),
        { code: 'ENOENT', path: nowhere.out },
        'before anything is played',
      );
      t.match(readJsonLines(out)[0], {
        messages: [{ role: 'user' }, { role: 'assistant' }],
        tag: 'Lake',
        seed: 1_000_000,
      });
      const own = join(folder, 'own.jsonl');
      const by = { out: own, quiet: true, policy: latestCheckpoint(run)!.policy, attempts: 3 };
      t.equal(await demonstrations(join(folder, 'config.yaml'), ['warm_start.episodes=4'], by), 0);
      const attempts = readJsonLines(own) as { messages: object[]; seed: number }[];
      t.same(
        attempts.map(({ seed }) => seed - 1_000_000),
        [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3],
      );
      t.notSame(attempts[0].messages, attempts[1].messages, 'attempts draw other tokens');
      const read = tinySettings(server.name, folder, 'read', {
        ...sft,
        warm_start: { ...warm_start, files: [out] },
      });
      t.ok(weightsOf(await trainTiny(read)).equals(weightsOf(run)), 'the same weights, bit for bit');

      const held = tinySettings(server.name, folder, 'held', {
        ...sft,
        warm_start: { ...warm_start, validation_share: 0.2 },
      });
      const rows = readJsonLines((await trainTiny(held)).metrics) as Row[];
      const validation = rows.flatMap(row => row['sft/validation_loss'] ?? []);
      t.equal(validation.length, 4, 'before and after each epoch');
      t.ok(validation[3] < validation[0]);
    },
  );
}

t.test('demonstrations longer than the context are left out', { timeout: MAX_MS }, async t => {
  const [server] = (await serve(t)).servers;
  const folder = t.testdir();
  const warm_start = { policy: 'optimal', episodes: 20, epochs: 1, batch_size: 4 };
  /** The time that is left, as it is shown after each optimizer step and after the epoch. */
  const lefts: string[] = [];
  const taught = async (context: number) => {
    const warnings: string[] = [];
    lefts.length = 0;
    const settings = tinySettings(server.name, folder, `context-${context}`, {
      policy: { context },
      training: { steps: 0 },
      validation: { episodes: 1 },
      warm_start,
    });
    const progress = {
      ...silentProgress,
      warn: (text: string) => warnings.push(text),
      update: (_: number, { left }: { readonly [label: string]: string }) => lefts.push(left),
    };
    const run = await trainTiny(settings, progress);
    const [first] = (readJsonLines(run.metrics) as Row[]).filter(row => 'sft/episodes' in row);
    return { warnings, tooLong: first['sft/too_long'] };
  };
  const some = await taught(24);
  t.ok(some.tooLong > 0);
  t.ok(lefts.length > 2, 'from the first optimizer step on');
  for (const left of lefts) t.match(left, /^\d+ s$/);
  t.equal(lefts.at(-1), '0 s');
  t.match(some.warnings, [`${some.tooLong} demonstrations are longer than policy.context 24 and left out`]);
  t.same(await taught(40), { warnings: [], tooLong: 0 });
  await t.rejects(taught(23), /no demonstration fits policy\.context 23: the shortest has 24 tokens/);
});

t.test('a warm start with no demonstration left says why', { timeout: MAX_MS }, async t => {
  const [server] = (await serve(t)).servers;
  const settings = tinySettings(server.name, t.testdir(), 'none', {
    warm_start: { policy: 'random', episodes: 4 },
    training: { steps: 0 },
  });
  const { collect } = Collector.prototype;
  t.capture(
    Collector.prototype,
    'collect',
    async function (this: Collector, ...args: Parameters<typeof collect>) {
      return { ...(await collect.apply(this, args)), episodes: [] };
    },
  );
  await t.rejects(trainTiny(settings), /none of the 4 demonstrations of warm_start came to an end/);
});

t.test('a warm start that was stopped continues bit for bit', { timeout: MAX_MS }, async t => {
  const [server] = (await serve(t)).servers;
  const folder = t.testdir();
  const settings = (name: string) =>
    tinySettings(server.name, folder, name, {
      warm_start: {
        policy: 'optimal',
        episodes: 20,
        epochs: 4,
        batch_size: 4,
        random_turns: 0.2,
        validation_share: 0.2,
      },
    });
  const whole = await trainTiny(settings('whole'));
  const epochs = ({ metrics }: RunFolder) =>
    sftRows(metrics).map(row => [row['sft/epoch'], row['sft/loss'], row['sft/validation_loss']]);
  t.equal(epochs(whole).length, 4);

  const stopped = createRunFolder(settings('stopped'), 'x');
  const { metrics } = stopped;
  const goOn = (progress: Progress, stop: AbortController) =>
    trainRun(stopped, settings('stopped'), progress, stop.signal);
  const abort = (stop: AbortController) => stop.abort(new DOMException('stop', 'AbortError'));
  const afterEpoch = new AbortController();
  const watching = { ...silentProgress, update: (done: number) => done === 1 && abort(afterEpoch) };
  t.equal(await goOn(watching, afterEpoch), undefined);
  t.match(readWarmStart(stopped)?.state, { updates: 4, demonstrations: 20 });
  t.equal(epochs(stopped).length, 1);

  const withinEpoch = new AbortController();
  const update = LocalPolicy.prototype.update;
  let updates = 0;
  const counted = t.capture(
    LocalPolicy.prototype,
    'update',
    async function (this: LocalPolicy, batch: UpdateBatch, own: UpdateSettings) {
      const result = await update.call(this, batch, own);
      if (++updates === 6) abort(withinEpoch);
      return result;
    },
  );
  t.equal(await goOn(silentProgress, withinEpoch), undefined);
  counted.restore();
  t.match(readWarmStart(stopped)?.state, { updates: 10, epochMetrics: { length: 2 } });
  t.equal(epochs(stopped).length, 2);
  t.equal(latestCheckpoint(stopped), undefined);

  const games = join(stopped.warmStart, 'demonstrations.jsonl');
  t.equal(readJsonLines(games).length, 20, 'games are not played again');
  await goOn(silentProgress, new AbortController());
  t.same(epochs(stopped), epochs(whole));
  t.ok(weightsOf(stopped).equals(weightsOf(whole)), 'the same weights, bit for bit');
  t.equal((readJsonLines(metrics) as Row[]).filter(row => 'sft/episodes' in row).length, 1);
  t.notOk(existsSync(stopped.warmStart), 'nothing is kept of a warm start that is over');
});

t.test('a stopped warm start refuses files that have changed', { timeout: MAX_MS }, async t => {
  const folder = t.testdir();
  const file = join(folder, 'chats.jsonl');
  const line = `${JSON.stringify({
    messages: [
      { role: 'user', content: 'Which way?' },
      { role: 'assistant', content: 'Up' },
    ],
  })}\n`;
  writeFileSync(file, line.repeat(4));
  const settings = validateConfig(
    {
      run: { folder, name: 'chats' },
      policy: { init: QWEN, context: 64, value_head: false, workers: 1 },
      warm_start: { files: [file], epochs: 3, batch_size: 2, warmup_steps: 0 },
      training: { steps: 0 },
      tracking: { tensorboard: false },
    },
    RunSettings,
  );
  const run = createRunFolder(settings, 'x');
  const stop = new AbortController();
  const progress = { ...silentProgress, update: () => stop.abort(new DOMException('stop', 'AbortError')) };
  t.equal(await trainRun(run, settings, progress, stop.signal), undefined);
  writeFileSync(file, line.repeat(5));
  const resumed = trainRun(run, settings, silentProgress, new AbortController().signal);
  await t.rejects(resumed, /has 5 conversations .* and had 4 conversations .* start a new run/);
});

t.test('a pretrained model learns a file of chats without any environment', { timeout: MAX_MS }, async t => {
  const folder = t.testdir();
  const file = join(folder, 'chats.jsonl');
  const chat = (question: string, answer: string) =>
    `${JSON.stringify({
      messages: [
        { role: 'user', content: question },
        { role: 'assistant', content: answer },
      ],
    })}\n`;
  writeFileSync(file, chat('Which way?', 'Up') + chat('And then?', 'Down') + chat('x'.repeat(500), 'Left'));
  const settings = validateConfig(
    {
      run: { folder, name: 'chats' },
      policy: { init: QWEN, context: 64, value_head: false, workers: 1 },
      warm_start: { files: [file], epochs: 6, batch_size: 2, warmup_steps: 0 },
      training: { steps: 0 },
      tracking: { tensorboard: false },
    },
    RunSettings,
  );
  checkRunSettings(settings, 'test');
  const run = createRunFolder(settings, 'x');
  const warnings: string[] = [];
  const progress = { ...silentProgress, warn: (text: string) => warnings.push(text) };
  const summary = await trainRun(run, settings, progress, new AbortController().signal);
  t.equal(summary?.ended, 'finished');
  t.match(warnings.join('\n'), /1 conversations are longer than policy\.context 64 and left out/);
  const losses = sftRows(run.metrics).map(row => row['sft/loss']);
  t.ok(losses[5] < losses[0] / 2, `${losses[0]} to ${losses[5]}`);
  t.ok(existsSync(join(latestCheckpoint(run)!.policy, 'tokenizer.json')), 'a whole model, to start from');
  t.throws(
    () => checkRunSettings({ ...settings, warm_start: null }, 'test'),
    /train_tags.*warm_start\.files no conversations/,
  );
});
