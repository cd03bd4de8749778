import t from 'tap';
import { episodeReturn } from '../rollout/episode.ts';
import { RewardFault, type RewardHook } from '../rollout/rewards/reward-hook.ts';
import { programPlays, script } from './gateway.test-data.ts';

const TWO_ROLES = `
  const { observation } = task();
  await chat([{ role: 'system', content: 'plan' }, { role: 'user', content: observation }]);
  const reply = await chat([{ role: 'user', content: observation }]);
  await step(reply.choices[0].message.content);
`;

t.test('a reward hook judges episodes of programs; its faults cost their episodes alone', async t => {
  const { play } = await programPlays(
    t,
    { command: script(TWO_ROLES) },
    { answer: prompt => /user\n(\S+) or/.exec(prompt)?.[1] ?? 'none' },
  );
  const faults = new Map([
    [100, 1],
    [101, 2],
  ]);
  const seen: unknown[] = [];
  const hook: RewardHook = {
    name: 'judge',
    mode: 'replace',
    async ask({ seed, turns }) {
      seen.push(turns.length);
      const left = faults.get(seed) ?? 0;
      faults.set(seed, left - 1);
      if (left > 0) throw new RewardFault(this, 'has no idea');
      return { reward: 5 };
    },
    async close() {},
  };
  const { episodes, lost, dropped } = await play(3, 3, hook);
  t.same(
    [100, 101, 102].map(seed => episodes.filter(episode => episode.seed === seed).length),
    [2, 0, 3],
  );
  t.same([lost.length, dropped.length], [1, 1]);
  t.match(dropped[0].error.message, /rollout\.reward: judge has no idea/);
  t.ok(episodes.every(episode => episodeReturn(episode) === 5));
  t.ok(seen.every(turns => turns === 2));
});
