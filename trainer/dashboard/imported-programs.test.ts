import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { createApp } from '../../env-server/app.ts';
import { RunReader } from '../../site/server/reader/run-reader.ts';
import { lacksPython, PYTHON, PYTHON_MS } from '../../test/python.test-data.ts';
import { hostOf } from '../../test/wire.test-data.ts';
import { importRuns } from './imported-runs.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const EXAMPLES = join(ROOT, 'docs/examples/python');

const python = (...args: string[]) =>
  promisify(execFile)(PYTHON, args, {
    cwd: EXAMPLES,
    timeout: PYTHON_MS,
    env: {
      ...process.env,
      PYTHONPATH: `${join(ROOT, 'openapi/python/src')}:${EXAMPLES}`,
      PYTHONDONTWRITEBYTECODE: '1',
      OMP_NUM_THREADS: '1',
      TRL_EXPERIMENTAL_SILENCE: '1',
    },
  });

t.test(
  'completions that TRL writes are read',
  { skip: lacksPython('trl', 'torch', 'transformers', 'datasets', 'pandas'), timeout: PYTHON_MS },
  async t => {
    const folder = t.testdir({ root: {} });
    const [model, output] = [join(folder, 'tiny'), join(folder, 'output')];
    await python('tiny_model.py', model, 'left', 'down', 'right', 'up');
    await python(join(ROOT, 'trainer/dashboard/trl-completions.test-data.py'), model, output);
    t.same(readdirSync(join(output, 'completions')).sort(), [
      'completions_00001.parquet',
      'completions_00002.parquet',
    ]);
    const root = join(folder, 'root');
    const runs = await importRuns([join(output, 'completions')], root);
    t.match(runs, [{ id: 'completions', episodes: 16, formats: ['TRL'], notes: [] }]);
    const reader = new RunReader(root);
    const episodes = (await reader.episodes('completions', 'train-000002'))!;
    t.same(
      episodes.map(({ group_id, member }) => [group_id, member]),
      [0, 1].flatMap(group => [0, 1, 2, 3].map(member => [group, member])),
    );
    for (const { prompt, return: reward, advantage } of episodes) {
      t.match(prompt, /^system\nBe short\.\n\nuser\nWhere is \d\?$/);
      t.ok(reward! > 0);
      t.type(advantage, 'number');
    }
    const first = (await reader.episode('completions', 'train-000002', 0))!.episode;
    t.ok(first.turns[0].llm_response.length >= first.turns[0].rewards!.length - 1);
  },
);

t.test(
  'traces that verifiers writes are read',
  { skip: lacksPython('httpx', 'numpy', 'websockets', 'verifiers', 'uv'), timeout: PYTHON_MS },
  async t => {
    const folder = t.testdir({ root: {}, traces: {} });
    const app = await createApp({ logLevel: 'silent' });
    t.teardown(() => app.server.close());
    await app.server.listen({ port: 0, host: '127.0.0.1' });
    await python('play-verifiers.test-data.py', `http://${hostOf(app)}`, join(folder, 'traces'));
    const root = join(folder, 'root');
    const runs = await importRuns([join(folder, 'traces/traces.jsonl')], root);
    t.match(runs, [{ id: 'traces', episodes: 3, formats: ['verifiers'], notes: [] }]);
    const reader = new RunReader(root);
    const episodes = (await reader.episodes('traces', 'train-000000'))!;
    for (const { success, return: reward, turns, group_id, index } of episodes) {
      t.ok(success && reward! > 10);
      t.same([turns, group_id], [1, index], 'a level each');
    }
    const { episode } = (await reader.episode('traces', 'train-000000', 0))!;
    t.match(episode.turns, [{ state: /box/, llm_response: /^<answer>.*<\/answer>$/ }]);
  },
);
