/**
 * Processor time to make the grammar of a state's actions on SmolLM2's vocabulary: `node bench/state-grammars.ts`. Medians of fresh
 * prompts, of the same actions again, and of a state in which one action changed.
 */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { grammarBytes } from '../trainer/generation/grammar.ts';
import { loadTokenizer } from '../trainer/models/tokenizer/load.ts';
import { chatPrompt } from '../trainer/prompts/chat.ts';
import { cpuMsSince, median } from './measuring.ts';

const RUNS = 9;
const VERBS = ['take', 'open', 'go to', 'put down', 'look at', 'use', 'clean', 'heat'];
const THINGS = ['apple', 'drawer', 'cabinet', 'lamp', 'fridge', 'microwave', 'pan', 'statue'];

const file = execFileSync(join(import.meta.dirname, '../install/smollm2.sh'), { encoding: 'utf8' }).trim();
const tokenizer = await loadTokenizer(file);
const task = {
  description: { environmentId: 'Text-v0', instruction: 'Act.', legend: [] },
  maxTurns: 1,
  maxActionsPerTurn: 1,
  maxActionsPerTrajectory: 1,
  responseLength: 64,
  think: false,
};

function cpuMs(work: () => void): number {
  const before = process.cpuUsage();
  work();
  return cpuMsSince(before);
}

const actionsOf = (count: number, run: number) =>
  Array.from(
    { length: count },
    (_, i) => `${VERBS[i % 8]} ${THINGS[(i >> 3) % 8]} ${(i >> 6) + 1} of ${run}`,
  );

chatPrompt(task, tokenizer).tokens!.stateGrammar(actionsOf(2000, RUNS));
for (const count of [2, 100, 2000]) {
  const times = Array.from({ length: RUNS }, (_, run) => {
    const { stateGrammar } = chatPrompt(task, tokenizer).tokens!;
    const actions = actionsOf(count, run);
    const first = cpuMs(() => stateGrammar(actions));
    const again = cpuMs(() => stateGrammar(actions));
    return { first, again, changed: cpuMs(() => stateGrammar([...actions.slice(1), 'wait'])) };
  });
  const shown = (['first', 'again', 'changed'] as const).map(
    name => `${name} ${median(times.map(time => time[name])).toFixed(1)} ms`,
  );
  const bytes = grammarBytes(chatPrompt(task, tokenizer).tokens!.stateGrammar(actionsOf(count, 0)));
  console.log(`${count} actions: ${shown.join(', ')}; ${bytes} bytes`);
}
