import { join } from 'node:path';
import t from 'tap';
import { serve } from '../rollout/server.test-data.ts';
import { tinySettings, trainTiny } from '../training/runs.test-data.ts';
import { diagnose } from './diagnose.ts';

const MAX_MS = 900_000;

t.test(
  'a run or one of its checkpoints is measured, and nothing is trained',
  { timeout: MAX_MS },
  async t => {
    const [{ name: url }] = (await serve(t)).servers;
    const settings = tinySettings(url, t.testdir(), 'run', {
      rollout: { constrained: true },
      training: { steps: 2, checkpoint_every: 1 },
      loss: { kl: { coefficient: 0.1 } },
    });
    const run = await trainTiny(settings);
    const printed = async (target: string, overrides: string[] = [], json = false) => {
      const lines = t.capture(console, 'log');
      t.equal(await diagnose(target, overrides, { quiet: true, json }), 0);
      lines.restore();
      return lines()
        .map(({ args }) => args.join(' '))
        .join('\n');
    };
    const newest = JSON.parse(await printed(run.path, [], true));
    t.equal(newest.step, 2);
    t.equal(newest.metrics['trainer/exited_after_gradient_analysis'], 1);
    t.equal(newest.metrics['grad_norm/all/group_rv_count'], 4);
    t.ok('collapse_action_first_turn_sample/mi_seq_share' in newest.metrics);
    t.same(newest.tables['grad_norm/all/group_rv_table'].columns, ['group', 'std']);
    const again = JSON.parse(await printed(run.path, [], true));
    const stable = ({ metrics }: { metrics: object }) =>
      Object.fromEntries(Object.entries(metrics).filter(([name]) => !name.startsWith('timing_s')));
    t.same(stable(again), stable(newest), 'the same groups every time');
    const first = JSON.parse(await printed(join(run.checkpoints, 'step-000001', 'policy'), [], true));
    t.equal(first.step, 1, 'the policy within a checkpoint means the checkpoint');
    const text = await printed(run.checkpoints, ['rollout.env_groups=3']);
    t.match(text, /^actions +first turns +any turns$/m);
    t.match(text, /^grad_norm_prefilter +group_rv_count/m);
    t.match(text, /^bucket_3 +1 /m);
    await t.rejects(diagnose(join(run.checkpoints, 'step-000009'), [], {}), /holds no checkpoint/);
  },
);
