import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { serve } from '../../rollout/server.test-data.ts';
import { goldenFolder } from '../../serve/serve.test-data.ts';
import { latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import type { RunSummary } from '../../training/run-folder/report.ts';
import { openRunFolder } from '../../training/run-folder/run-folder.ts';
import { supervise, train } from './train.ts';

const ROOT = new URL('../../../', import.meta.url);
const PAGES = ['docs/how-to/pretrained-models.md'];
/** The task and recipe of the command that trains a model in a folder. */
const COMMAND =
  /npm run trainer -- train (configs\/[\w-]+\.yaml) '(recipe=\[[\w,]+\])' policy\.init=<folder> (warm_start=null)/;
/** Learning to choose the better arm shows after a few steps; the docs leave the config's number. */
const SHORT = ['training.steps=14', 'validation.episodes=128'];
/** A base that names either arm needs fewer demonstrations than the config has, and nobody reads its validation. */
const BASE = ['warm_start.episodes=64', 'validation.episodes=1'];
const LONGEST_MS = 900_000;

t.test('the documented command for a model in a folder improves it', { timeout: LONGEST_MS }, async t => {
  const commands = PAGES.map(page => COMMAND.exec(readFileSync(new URL(page, ROOT), 'utf8')));
  const [[, config, recipe, noWarmStart]] = commands as RegExpExecArray[];
  for (const command of commands) t.same(command?.slice(1), [config, recipe, noWarmStart]);
  const [{ name: url }] = (await serve(t)).servers;
  const folder = t.testdir();
  t.capture(console, 'log');
  const started = (name: string) => [`servers=[{url: "${url}"}]`, `run.folder=${folder}`, `run.name=${name}`];
  const path = new URL(config, ROOT).pathname;
  t.equal(await supervise(path, [...started('base'), ...BASE], { quiet: true }), 0);
  const base = latestCheckpoint(openRunFolder(join(folder, 'base')).run)!.policy;
  const settings = [recipe, `policy.init=${base}`, noWarmStart, ...SHORT];
  t.equal(await train(path, [...started('trained'), ...settings], { quiet: true }), 0);
  const { run } = openRunFolder(join(folder, 'trained'));
  const { before, after } = JSON.parse(readFileSync(run.summary, 'utf8')) as RunSummary;
  console.error(before, after);
  for (const [tag, { success }] of Object.entries(after!.tags)) {
    t.ok(success > before!.tags[tag].success + 0.1, `${tag}: ${before!.tags[tag].success} → ${success}`);
  }
});

t.test(
  'conversations from files and no tags need no environment server',
  { timeout: LONGEST_MS },
  async t => {
    const said = ['user', 'assistant'].map(role => ({ role, content: 'Hi' }));
    const folder = t.testdir({ 'chats.jsonl': `${JSON.stringify({ messages: said })}\n` });
    t.capture(console, 'log');
    const settings = [
      ...['train_tags=[]', 'rollout.prompt=chat', 'policy.context=96', 'warm_start.epochs=1'],
      ...[`policy.init=${goldenFolder('qwen2-tiny')}`, `run.folder=${folder}`],
      ...['servers=[{url: "http://127.0.0.1:1"}]', 'rollout.server_patience_s=1'],
    ];
    const config = new URL('configs/bandit-nano.yaml', ROOT).pathname;
    t.equal(await supervise(config, settings, { quiet: true, data: [join(folder, 'chats.jsonl')] }), 0);
  },
);
