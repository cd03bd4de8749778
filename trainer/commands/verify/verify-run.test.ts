import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { parse, stringify } from 'yaml';
import type { Json } from '../../../shared/json.ts';
import { freePort } from '../../../test/free-port.test-data.ts';
import { loadRunSettings } from '../../config/load.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { openRunFolder, type RunFolder } from '../../training/run-folder/run-folder.ts';
import { tinySettings, trainTiny } from '../../training/runs.test-data.ts';
import { rescoreCommand } from './rescore.ts';
import { reportText, type StepReport, verifyRun } from './verify-run.ts';

/** The whole file takes seconds of processor time; a busy machine may need longer. */
const MAX_MS = 900_000;
const never = new AbortController().signal;
const parts = { note: () => {}, stop: never };

/** The quickstart's task, estimator and warm start, in small, with everything stored. */
const QUICK = {
  tags: { Lake: { env_id: 'FrozenLake-v0', max_turn: 3 } },
  policy: { value_head: true },
  algorithm: { advantage: 'gae', mini_batch_size: 16 },
  warm_start: { policy: 'random', learn: 'everything', episodes: 32, batch_size: 16, epochs: 1 },
  training: { steps: 3, checkpoint_every: 1, keep_checkpoints: 9, validate_every: 3 },
  tracking: { trajectories_every: 1 },
} satisfies Json;

async function trained(t: Test, over: Json = QUICK) {
  const [{ name: url }] = (await serve(t)).servers;
  const settings = tinySettings(url, t.testdir(), 'run', over);
  return { run: await trainTiny(settings), settings };
}

const skippedOf = (report: StepReport) =>
  Object.entries(report.checks).filter(([, verdict]) => 'skipped' in verdict!);

t.test('a run like the quickstart agrees in all of its checks', { timeout: MAX_MS }, async t => {
  const { run } = await trained(t);
  const { settings } = openRunFolder(run.path);
  const reports = await verifyRun(run, settings, parts);
  t.same(
    reports.map(({ kind, step, episodes }) => [kind, step, episodes]),
    [
      ['train', 1, 16],
      ['train', 2, 16],
      ['train', 3, 16],
      ['validation', 3, 4],
    ],
  );
  t.same(reports.flatMap(skippedOf), [], 'everything was checked');
  const text = reportText(reports);
  t.match(text, /100 % of 21 checks agree bit for bit/);
  for (const { kind, episodes, checks } of reports) {
    t.same(checks.replay, { agrees: episodes });
    if (kind === 'train')
      t.ok((checks.update as { agrees: number }).agrees > 40, 'metrics, tokens and weights');
  }
});

t.test('a run of `npm start` agrees in all of its checks', { timeout: MAX_MS }, async t => {
  const [{ name: url }] = (await serve(t)).servers;
  const config = new URL('../../../configs/quickstart.yaml', import.meta.url).pathname;
  const settings = loadRunSettings(config, [
    `servers=[{url: "${url}"}]`,
    `run.folder=${t.testdir()}`,
    'run.name=quickstart-001',
    'policy.workers=1',
    // The rest is as shipped; whole, it takes minutes.
    'warm_start.episodes=64',
    'rollout.env_groups=32',
    'validation.episodes=16',
    'training.steps=2',
    'training.validate_every=2',
    'training.checkpoint_every=1',
    'tracking.trajectories_every=1',
  ]);
  const run = await trainTiny(settings);
  const text = reportText(await verifyRun(run, openRunFolder(run.path).settings, parts));
  t.match(text, /100 % of \d+ checks agree bit for bit/, text);
  t.match(text, /^train +2 .* \d+ ok$/m, 'the update was computed again');
});

t.test(
  'a changed state, action, reward, decision, advantage or weight is found and named',
  { timeout: MAX_MS },
  async t => {
    const { run } = await trained(t, {
      ...QUICK,
      policy: { value_head: false },
      algorithm: { advantage: 'grpo', mini_batch_size: 16 },
      training: { ...QUICK.training, steps: 2, validate_every: 50 },
    });
    const { settings } = openRunFolder(run.path);
    const files = join(run.path, '..', 'copies');
    let copies = 0;
    const differencesAfter = async (change: (copy: RunFolder) => void): Promise<string> => {
      const path = `${files}-${copies++}`;
      cpSync(run.path, path, { recursive: true });
      const { run: copy } = openRunFolder(path);
      change(copy);
      return reportText(await verifyRun(copy, settings, parts));
    };
    const edit = (file: string, from: RegExp, to: string) => {
      const text = readFileSync(file, 'utf8');
      t.match(text, from);
      writeFileSync(file, text.replace(from, to));
    };
    const first = (copy: RunFolder) => join(copy.trajectories, 'train-000002.jsonl');
    t.match(await differencesAfter(() => {}), /100 % of/);
    t.match(
      await differencesAfter(copy => edit(first(copy), /"state":"[^"]/, '"state":"?')),
      /first difference, replay of train 2: Lake\/\d+\/0.0: turn 1: the state before it is another one/,
    );
    t.match(
      await differencesAfter(copy => edit(first(copy), /"reward":0/, '"reward":0.5')),
      /replay of train 2: .*the reward is 0, not 0.5/,
    );
    t.match(
      await differencesAfter(copy => edit(first(copy), /"ended_by":"\w+"/, '"ended_by":"bear"')),
      /replay of train 2: .*its end is \w+, not bear/,
    );
    t.match(
      await differencesAfter(copy => edit(first(copy), /"llm_response":"/, '"llm_response":"!')),
      /actions of train 2: .*the cleaned response is another one/,
    );
    t.match(
      await differencesAfter(copy => edit(copy.groups, /"score":(?=\d)/, '"score":9')),
      /filter of train 1: group \d+ of Lake: its score is/,
    );
    t.match(
      await differencesAfter(copy =>
        edit(first(copy), /"advantages":\[((?:0,)*)(?!0,)/, '"advantages":[$17'),
      ),
      /(advantages|update) of train 2/,
    );
    t.match(
      await differencesAfter(copy => {
        const file = join(copy.checkpoints, 'step-000002', 'policy', 'model.safetensors');
        const bytes = readFileSync(file);
        bytes[bytes.length - 1] ^= 1;
        writeFileSync(file, bytes);
      }),
      /update of train 2: weights in model.safetensors: they are other ones/,
    );
    t.match(
      await differencesAfter(copy => edit(copy.metrics, /"actor\/pg_loss":-?/, '"actor/pg_loss":7')),
      /update of train 1: actor\/pg_loss: is/,
    );
  },
);

t.test(
  'a run without stored episodes says how to store some; missing checkpoints are named',
  { timeout: MAX_MS },
  async t => {
    const { run, settings } = await trained(t, { ...QUICK, training: { steps: 1 } });
    for (const name of readdirSync(run.trajectories)) rmSync(join(run.trajectories, name));
    await t.rejects(
      verifyRun(run, settings, parts),
      /no stored episodes to verify: train with tracking.trajectories_every=1/,
    );
    await t.rejects(rescoreCommand(run.path, { reward: 'x.ts' }), /no stored episodes/);
    const { run: other } = await trained(t, { ...QUICK, training: { steps: 2, validate_every: 50 } });
    const text = reportText(await verifyRun(other, openRunFolder(other.path).settings, parts));
    t.match(text, /100 % of \d+ checks/);
    t.match(text, /1 step was not checked, update: there is no checkpoint of iteration 1/);
    const stored = openRunFolder(other.path).settings;
    const away = {
      ...stored,
      servers: [{ ...stored.servers[0], url: `http://127.0.0.1:${await freePort()}` }],
      rollout: { ...stored.rollout, server_patience_s: 0 },
    };
    await t.rejects(verifyRun(other, away, parts), /nothing listens there\)\nStart one in another terminal/);
  },
);

t.test(
  'trees, vines and prefixes replay through their changes of the stream',
  { timeout: MAX_MS },
  async t => {
    const tags = {
      Lake: {
        env_id: 'FrozenLake-v0',
        config: { size: 2, p_frozen: 1, success_rate: 0.7 },
        max_turn: 4,
        max_actions_per_turn: 1,
        max_actions_per_traj: 4,
      },
    };
    for (const branching of [
      {
        rollout: { env_groups: 4, group_size: 8, tree: { roots: 4 } },
        algorithm: { advantage: 'tree_loo', mini_batch_size: 16 },
      },
      {
        rollout: { env_groups: 16, group_size: 1, vine: { clones: 2 } },
        algorithm: { advantage: 'vine', mini_batch_size: 16 },
      },
      {
        rollout: { env_groups: 4, group_size: 8, prefix: { share: 0.5, low: 0.49, high: 0.51 } },
        algorithm: { advantage: 'rloo', mini_batch_size: 16 },
      },
    ]) {
      const { run } = await trained(t, {
        ...QUICK,
        ...(branching as object),
        tags,
        policy: { value_head: false },
      } as Json);
      const reports = await verifyRun(run, openRunFolder(run.path).settings, parts);
      const text = reportText(reports);
      t.match(text, /100 % of 21 checks/, text);
      const stored = readFileSync(join(run.trajectories, 'train-000003.jsonl'), 'utf8');
      t.match(stored, 'vine' in branching.rollout ? /"continuations":\[/ : /"reseeds":\[/);
    }
  },
);

t.test(
  'rescore gives the rewards of a function, and leaves the run as it is',
  { timeout: MAX_MS },
  async t => {
    const { run } = await trained(t);
    const folder = join(run.path, '..');
    writeFileSync(
      join(folder, 'turns.ts'),
      'export const reward = (episode: { turns: object[] }) => ({ reward: episode.turns.length });',
    );
    writeFileSync(join(folder, 'broken.ts'), 'export const reward = () => { throw new Error("no idea"); };');
    const before = readFileSync(join(run.trajectories, 'train-000001.jsonl'), 'utf8');
    const out = join(folder, 'out.jsonl');
    const printed = t.capture(console, 'log');
    t.equal(await rescoreCommand(run.path, { reward: join(folder, 'turns.ts'), out, json: true }), 0);
    const rows = JSON.parse(printed()[0].args[0]);
    t.match(rows[0], { kind: 'train', step: 1, episodes: 16, failed: 0 });
    const lines = readFileSync(out, 'utf8')
      .trim()
      .split('\n')
      .map(line => JSON.parse(line));
    t.equal(lines.length, 3 * 16 + 4);
    const [record] = before.split('\n', 1).map(line => JSON.parse(line));
    const penalties = record.turns.reduce((sum: number, turn: { penalty: number }) => sum + turn.penalty, 0);
    t.ok(Math.abs(lines[0].rescored - (record.turns.length + penalties)) < 1e-9);
    t.equal(readFileSync(join(run.trajectories, 'train-000001.jsonl'), 'utf8'), before);
    const said = t.capture(console, 'error');
    await t.rejects(rescoreCommand(run.path, { reward: join(folder, 'broken.ts') }), /no idea/);
    t.same(
      said().map(({ args }) => /^Lake\/\S+ has no reward: .*no idea/.test(args[0])),
      [true],
      'the first failure is reported when it happens',
    );
    // The first episode is rewarded, so that the time is that of a function and not of its start.
    writeFileSync(
      join(folder, 'endless.ts'),
      'let seen = 0; export const reward = () => { while (seen++ > 0); return { reward: 1 }; };',
    );
    const settings = parse(readFileSync(run.config, 'utf8'));
    settings.rollout.reward = { file: join(folder, 'turns.ts'), timeout_s: 1 };
    writeFileSync(run.config, stringify(settings));
    await t.rejects(
      rescoreCommand(run.path, { reward: join(folder, 'endless.ts') }),
      /endless\.ts took more than 1 s for an episode/,
    );
    t.equal(said().length, 0, 'no other episode is tried');
    await t.rejects(
      rescoreCommand(run.path, { reward: join(folder, 'broken.ts'), out: join(folder, 'none', 'out.jsonl') }),
      { code: 'ENOENT' },
      'before anything is rewarded',
    );
    await t.rejects(rescoreCommand(run.path, { reward: join(folder, 'x.ts') }), /there is no file .*x\.ts/);
  },
);
