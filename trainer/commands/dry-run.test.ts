import t from 'tap';
import { parse } from 'yaml';
import { serve } from '../rollout/server.test-data.ts';
import { tinySettings } from '../training/runs.test-data.ts';
import { dryRun } from './dry-run.ts';

const never = new AbortController().signal;
const head = 17;
const layer = 4 * 16 * 16 + 3 * 16 + 3 * 16 * 32 + 2 * 16;

t.test('settings as YAML, and sizes with the vocabulary of the environments', async t => {
  const [server] = (await serve(t)).servers;
  const settings = tinySettings(server.name, t.testdir(), 'tiny');
  const text = await dryRun(settings, never);
  t.same(parse(text), settings);
  const [, parameters, words] = /# policy: (\d+) parameters .* from scratch, (\d+) words/
    .exec(text)!
    .map(Number);
  t.ok(words > 10);
  t.equal(parameters, words * 16 + layer + 16 + head);
  t.match(text, '# episodes: 16 an iteration, 32 in 2 iterations');
});

t.test('without a server the vocabulary is left open, and a folder needs none', async t => {
  const settings = tinySettings('http://127.0.0.1:1', t.testdir(), 'tiny');
  t.match(await dryRun(settings, never), /with one word, and 16 for each other: .* no server answered/);
  const init = new URL('../../test/golden/models/qwen2-tiny', import.meta.url).pathname;
  const folder = { ...settings, policy: { ...settings.policy, init } };
  t.match(await dryRun(folder, never), new RegExp(`from ${init}`));
  const lora = { rank: 2, alpha: 4, rank_stabilized: false, target_modules: ['q_proj' as const], dropout: 0 };
  const adapted = { ...folder, policy: { ...folder.policy, lora } };
  t.match(await dryRun(adapted, never), /# learned: \d+ of them \(.*\), adapters and value head/);
});
