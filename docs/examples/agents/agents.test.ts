import { spawnSync } from 'node:child_process';
import t from 'tap';
import { EXAMPLE_AGENTS, type ExampleAgent } from '../../../bench/agents/examples.ts';
import { learnAgent } from '../../../bench/agents/learn.ts';
import { lacksPython } from '../../../test/python.test-data.ts';
import { mean } from '../../../trainer/algorithms/statistics.ts';
import { LAKE, programPlays } from '../../../trainer/gateway/gateway.test-data.ts';
import { samplesOf } from '../../../trainer/rollout/episode.ts';

const TIMEOUT_MS = 900_000;

/** Why a program cannot run here, or false. */
function lacks({ packages, command }: ExampleAgent): string | false {
  if (packages.length > 0) return lacksPython(...packages);
  if (command[0] !== 'sh') return false;
  const missing = ['curl', 'jq'].filter(name => spawnSync(name, ['--version']).error);
  return missing.length > 0 && `needs ${missing.join(', ')}`;
}

for (const agent of EXAMPLE_AGENTS) {
  t.test(`${agent.name}: plays Bandit`, { skip: lacks(agent), timeout: TIMEOUT_MS }, async t => {
    for (const workers of agent.stays ? [0, 1] : [0]) {
      const { play, notes } = await programPlays(
        t,
        { command: agent.command, workers, timeoutMs: 60_000 },
        { answer: prompt => agent.write(/(\w+) or/.exec(prompt)?.[1] ?? 'none') },
      );
      const { episodes } = await play(1, 2);
      t.equal(episodes.length, 2, notes.join('\n'));
      for (const episode of episodes) {
        t.ok(episode.terminated);
        t.equal(samplesOf(episode).length, agent.name.includes('planner') ? 2 : 1);
        t.equal(episode.turns.at(-1)?.actions.length, 1);
      }
    }
  });

  if (agent.name.includes('planner')) continue;
  t.test(
    `${agent.name}: plays FrozenLake in one conversation`,
    { skip: lacks(agent), timeout: TIMEOUT_MS },
    async t => {
      const { play, notes } = await programPlays(
        t,
        { command: agent.command, timeoutMs: 60_000, maxTokens: 100_000 },
        { tag: { ...LAKE, maxActionsPerTrajectory: 3 }, answer: () => agent.write('Up') },
      );
      const { episodes } = await play(1, 1);
      t.equal(episodes.length, 1, notes.join('\n'));
      for (const { turns, program } of episodes) {
        t.equal(turns.length, turns.flatMap(({ actions }) => actions).length);
        t.match(program, { calls: turns.length, merges: turns.length - 1, retokenizedTokens: 0 });
      }
    },
  );
}

t.test('a program learns from a warm start on its own prompts', { timeout: TIMEOUT_MS }, async t => {
  const agent = EXAMPLE_AGENTS.find(({ name }) => name === 'TypeScript, openai')!;
  const { success, retokenized } = await learnAgent(agent, {
    iterations: 7,
    groups: 8,
    groupSize: 4,
    miniBatch: 16,
    demonstrations: 32,
    epochs: 20,
    learningRate: 2e-3,
    arms: { low: 'Librarian', high: 'Stuntman' },
  });
  const before = mean(success.slice(0, 2));
  const after = mean(success.slice(-3));
  t.ok(after > before + 0.2, `success rises from ${before} to ${after}: ${success}`);
  t.equal(retokenized, 0);
});
