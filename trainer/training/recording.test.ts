import t from 'tap';
import type { GroupsRow, TrajectoryRecord } from '../../shared/dashboard/run-files.ts';
import { serve } from '../rollout/server.test-data.ts';
import { readJsonLines } from '../tracking/jsonlines.ts';
import { tinySettings, trainTiny, weightsOf } from './runs.test-data.ts';

t.test(
  'a run that records every step learns the same as one that records none',
  { timeout: 300_000 },
  async t => {
    const pool = await serve(t);
    const [{ name: url }] = pool.servers;
    const folder = t.testdir();
    const train = (name: string, trajectories_every: number) =>
      trainTiny(tinySettings(url, folder, name, { tracking: { trajectories_every } }));
    const quiet = await train('quiet', 0);
    const recorded = await train('recorded', 1);
    t.ok(weightsOf(quiet).equals(weightsOf(recorded)));
    t.equal((readJsonLines(quiet.groups) as GroupsRow[]).length, 2, 'groups are always written');
    const [{ step, groups }] = readJsonLines(recorded.groups) as GroupsRow[];
    t.same([step, groups.length], [1, 4]);
    const episodes = readJsonLines(`${recorded.trajectories}/train-000001.jsonl`) as TrajectoryRecord[];
    t.equal(episodes.length, 16);
    const group = groups.find(({ group_id }) => group_id === episodes[0].group_id)!;
    t.same(episodes[0].filter, { score: group.score, std: group.std, kept: group.kept });
  },
);
