/**
 * Trains a small policy with each program of docs/examples/agents as agent: Bandit with a better arm that always pays, from
 * a warm start on the program's own prompts that names either arm.
 *
 *     npm run bench:agents [-- --iterations 30 --only TypeScript --demonstrations 384]
 *
 * Programs with missing packages are named and left out; RAGEN_PYTHON names the interpreter. `before` and `after` are
 * the success of the first and the last three iterations of 64 episodes.
 */

import { lacksPython } from '../test/python.test-data.ts';
import { mean } from '../trainer/algorithms/statistics.ts';
import { EXAMPLE_AGENTS } from './agents/examples.ts';
import { learnAgent } from './agents/learn.ts';
import { positiveInteger, scriptFlags } from './flags.ts';

const MEASURED = 3;

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    iterations: { type: 'string', default: '30' },
    only: { type: 'string', default: '' },
    demonstrations: { type: 'string', default: '384' },
  },
});
const iterations = positiveInteger('iterations', flags.iterations);
const demonstrations = positiveInteger('demonstrations', flags.demonstrations);
const measured = Math.min(MEASURED, iterations);
const rows: object[] = [];
for (const agent of EXAMPLE_AGENTS) {
  if (!agent.name.includes(flags.only)) continue;
  const missing = agent.packages.length > 0 && lacksPython(...agent.packages);
  if (missing) {
    console.log(`${agent.name}: ${missing}`);
    continue;
  }
  const { success, samples, retokenized, seconds } = await learnAgent(agent, {
    iterations,
    groups: 16,
    groupSize: 4,
    miniBatch: 32,
    demonstrations,
    epochs: 40,
    learningRate: 1e-3,
  });
  rows.push({
    agent: agent.name,
    before: mean(success.slice(0, measured)).toFixed(2),
    after: mean(success.slice(-measured)).toFixed(2),
    'samples an episode': samples,
    'tokens retokenized': retokenized,
    seconds: Math.round(seconds),
  });
}
console.table(rows);
