import t from 'tap';
import { serve } from '../rollout/server.test-data.ts';
import { readJsonLines } from '../tracking/jsonlines.ts';
import type { RunFolder } from '../training/run-folder/run-folder.ts';
import {
  type Row,
  tinySettings,
  trainInTwo,
  trainingRows,
  trainTiny,
  weightsOf,
} from '../training/runs.test-data.ts';

/** The whole file takes seconds of processor time; a busy machine may need longer. */
const MAX_MS = 900_000;

/** Rows of a run without the clock and without what was measured besides. */
const learned = (run: RunFolder) =>
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

const ACTIONS = 'collapse_action_first_turn_sample';
const rollout = { env_groups: 3, group_size: 4, constrained: true };

t.test('measuring changes nothing in the run', { timeout: MAX_MS }, async t => {
  const pool = await serve(t);
  const [{ name: url }] = pool.servers;
  const run = (name: string, every: number) =>
    trainTiny(
      tinySettings(url, t.testdirName, name, {
        rollout,
        algorithm: { advantage: 'grpo', mini_batch_size: 8, filter: { strategy: 'top_k_abs', value: 2 } },
        loss: { kl: { coefficient: 0.1 } },
        diagnostics: { collapse: { every, samples: 4 }, gradients: { every } },
        training: { steps: 3 },
      }),
    );
  t.testdir();
  const plain = await run('plain', 0);
  const measured = await run('measured', 2);
  t.ok(weightsOf(measured).equals(weightsOf(plain)), 'weights');
  t.same(learned(measured), learned(plain));
  const has = (rows: Row[]) =>
    rows.map(row => ['grad_norm/all/task' in row, `${ACTIONS}/mi_seq_estimate` in row]);
  t.same(has(trainingRows(plain)), [
    [false, false],
    [false, false],
    [false, false],
  ]);
  const rows = trainingRows(measured);
  t.same(
    has(rows),
    [
      [true, true],
      [false, true],
      [true, false],
    ],
    'gradients at steps 1 and 3, collapse at 1 and 2',
  );
  const [, , last] = rows;
  t.ok(last['grad_norm/all/entropy'] > 0);
  t.ok(last['grad_norm/all/kl'] > 0, 'the policy has left its reference');
  t.equal(last['grad_norm/all/group_rv_count'], 2);
  t.equal(last['grad_norm_prefilter/all/group_rv_count'], 3);
  const tables = readJsonLines(measured.tables) as { step: number; name: string }[];
  t.ok(tables.some(({ step, name }) => step === 3 && name === 'grad_norm_prefilter/all/group_rv_table'));
});

t.test('a run that is resumed continues from its moving averages', { timeout: MAX_MS }, async t => {
  const pool = await serve(t);
  const [{ name: url }] = pool.servers;
  const settings = (name: string) =>
    tinySettings(url, t.testdirName, name, {
      rollout,
      diagnostics: { collapse: { every: 1, samples: 4 } },
      training: { steps: 4 },
    });
  t.testdir();
  const whole = await trainTiny(settings('whole'));
  const halves = await trainInTwo(settings('halves'), 2);
  const measured = (run: RunFolder) =>
    trainingRows(run).map(row =>
      Object.fromEntries(Object.entries(row).filter(([name]) => name.startsWith('collapse'))),
    );
  t.same(measured(halves), measured(whole));
  t.ok(measured(whole).every(row => `${ACTIONS}/marginal_std_ema` in row));
});
