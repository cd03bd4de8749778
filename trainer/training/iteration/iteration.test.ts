import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import t from 'tap';
import type { GroupsRow, TrajectoryRecord } from '../../../shared/run-folder/run-files.ts';
import { lacksPython, PYTHON } from '../../../test/python.test-data.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { MAX_MS, tinyRuns, weightsOf } from '../runs.test-data.ts';

t.test(
  'a run that records every step learns the same as one that records none',
  { timeout: MAX_MS },
  async t => {
    const { folder, train } = await tinyRuns(t);
    const quiet = await train('quiet', { tracking: { trajectories_every: 0 } });
    const recorded = await train('recorded', { tracking: { trajectories_every: 1 } });
    t.ok(weightsOf(quiet).equals(weightsOf(recorded)));
    t.equal((readJsonLines(quiet.groups) as GroupsRow[]).length, 2, 'groups are always written');
    const [{ step, groups }] = readJsonLines(recorded.groups) as GroupsRow[];
    t.same([step, groups.length], [1, 4]);
    const episodes = readJsonLines(`${recorded.trajectories}/train-000001.jsonl`) as TrajectoryRecord[];
    t.equal(episodes.length, 16);
    const group = groups.find(({ group_id }) => group_id === episodes[0].group_id)!;
    t.same(episodes[0].filter, { score: group.score, std: group.std, kept: group.kept });

    await t.test('the docs load it into a notebook with plain Python', { skip: lacksPython() }, async t => {
      const page = readFileSync(new URL('../../../docs/how-to/notebook.md', import.meta.url), 'utf8');
      const blocks = [...page.matchAll(/```python\n(.*?)```/gs)].map(match => match[1]);
      const code = blocks.filter(block => !block.includes('pandas')).join('\n');
      const program = code.replaceAll('"runs"', JSON.stringify(folder)).replaceAll('val-env/', 'train/');
      const printed = execFileSync(PYTHON, ['-c', program], { encoding: 'utf8' }).trim().split('\n');
      t.match(printed, [/^quiet \(2, 0?\.?\d+\)$/, /^recorded \(2, /, /^16 /]);
    });
  },
);
