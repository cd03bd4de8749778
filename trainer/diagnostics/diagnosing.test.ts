import t from 'tap';
import { serve } from '../rollout/server.test-data.ts';
import { readJsonLines } from '../tracking/jsonlines.ts';
import type { RunFolder } from '../training/run-folder.ts';
import { type Row, tinySettings, trainingRows, trainTiny, weightsOf } from '../training/runs.test-data.ts';

/** The whole file takes seconds of processor time; a busy machine may need longer. */
const MAX_MS = 300_000;

/** Rows of a run without the clock and without what was measured besides. */
const learnt = (run: RunFolder) =>
  (readJsonLines(run.metrics) as Row[])
    .map(row =>
      Object.fromEntries(
        Object.entries(row).filter(
          ([name]) =>
            !/^(time|timing_s|perf|rollouter|trainer|training\/seconds|collapse|grad_norm)/.test(name),
        ),
      ),
    )
    .filter(row => Object.keys(row).length > 1);

t.test('measuring changes nothing in the run', { timeout: MAX_MS }, async t => {
  const pool = await serve(t);
  const [{ name: url }] = pool.servers;
  const run = (name: string, every: number) =>
    trainTiny(
      tinySettings(url, t.testdirName, name, {
        rollout: { env_groups: 3, group_size: 4, think: true, response_length: 9 },
        loss: { kl: { coefficient: 0.1 } },
        diagnostics: { collapse: { every, samples: 4 }, gradients: { every } },
        training: { steps: 2 },
      }),
    );
  t.testdir();
  const plain = await run('plain', 0);
  const measured = await run('measured', 2);
  t.ok(weightsOf(measured).equals(weightsOf(plain)), 'weights');
  t.same(learnt(measured), learnt(plain));
  const has = (rows: Row[]) =>
    rows.map(row => ['grad_norm/all/task' in row, 'collapse/valid_thinking_rate' in row]);
  const [no, yes] = [
    [false, false],
    [true, true],
  ];
  t.same(has(trainingRows(plain)), [no, no]);
  t.same(has(trainingRows(measured)), [no, yes]);
  const row = trainingRows(measured)[1];
  t.ok(row['grad_norm/all/entropy'] > 0);
  t.ok(row['grad_norm/all/kl'] > 0, 'the policy has left its reference');
});
