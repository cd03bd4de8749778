import { join } from 'node:path';
import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { goldenFolder, startServer } from '../../serve/serve.test-data.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { latestCheckpoint } from '../../training/run-folder/checkpoint.ts';
import { tinySettings, trainTiny } from '../../training/runs.test-data.ts';
import { evaluate } from './evaluate.ts';

const MAX_MS = 900_000;
const CONTEXT = 640;

t.test('a checkpoint scores the same here and through a served endpoint', { timeout: MAX_MS }, async t => {
  const [{ name: url }] = (await serve(t)).servers;
  const folder = t.testdir();
  const run = await trainTiny(
    tinySettings(url, folder, 'taught', {
      tags: { Bandit: { env_id: 'Bandit-v0', max_turn: 1, max_actions_per_turn: 1 } },
      train_tags: ['Bandit'],
      policy: { init: goldenFolder('qwen2-tiny'), context: CONTEXT, value_head: false },
      rollout: { prompt: 'chat', think: true, response_length: 32 },
      warm_start: { policy: 'optimal', episodes: 32, batch_size: 8, epochs: 9, learning_rate: 0.01 },
      training: { steps: 0 },
      validation: { episodes: 8, temperature: 0 },
    }),
  );
  const server = await startServer(t, latestCheckpoint(run)!.policy, {
    policy: { workers: 1, maxSequenceLength: CONTEXT },
  });
  const played = async (name: string, overrides: readonly string[]): Promise<JsonObject[]> => {
    const output = join(folder, name);
    const policy = [overrides.length === 0 ? 'checkpoint' : 'endpoint'];
    const { log } = console;
    console.log = () => {};
    try {
      t.equal(await evaluate(run.path, overrides, { policy, output, quiet: true }), 0);
    } finally {
      console.log = log;
    }
    return readJsonLines(join(output, `${policy[0]}-greedy.jsonl`)) as JsonObject[];
  };
  const endpoint = `endpoint={url: "${server.url}/v1", model: base, continue_final_message: true}`;
  const here = await played('here', []);
  const there = await played('there', [endpoint]);
  const said = (episodes: readonly JsonObject[]) =>
    episodes.map(({ seed, success, turns }) => ({
      seed,
      success,
      responses: (turns as JsonObject[]).map(turn => turn.llm_raw_response),
    }));
  t.same(said(there), said(here));
  t.ok(
    here.some(({ success }) => success === true),
    'the checkpoint has learned something',
  );
});
