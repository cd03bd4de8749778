import { readFileSync } from 'node:fs';
import t from 'tap';
import { chatModelPage, type StoryData } from '../chat-model/page.ts';
import { CLAIMS } from './claims.ts';
import type { ClaimOutcome } from './outcomes.ts';
import { claimPage } from './report.ts';
import { ranks, spearman } from './spearman.ts';
import { reasoningSection } from './thinking.ts';
import { withPlans } from './thoughts.ts';

t.test('rank correlation shares ranks among equals and follows order, not size', async t => {
  t.same(ranks([3, 1, 3, 2]), [3.5, 1, 3.5, 2]);
  t.equal(spearman([1, 2, 3, 4], [10, 100, 1000, 10_000]), 1);
  t.equal(spearman([1, 2, 3], [9, 5, 1]), -1);
  // scipy.stats.spearmanr([1, 2, 3, 4, 5], [5, 6, 7, 8, 7])
  t.ok(Math.abs(spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) - 0.820782681668123) < 1e-12);
  t.ok(Number.isNaN(spearman([1, 2], [3, 3])));
  t.throws(() => spearman([1], [1]), /from 2, got 1 and 1/);
});

t.test('a planned thought holds the moves that follow, this turn’s first', async t => {
  const answer = (actions: string) => ({
    role: 'assistant',
    content: `<think></think><answer>${actions}</answer>`,
  });
  const user = { role: 'user', content: 'grid' };
  const planned = withPlans([user, answer('Up||Up'), user, answer('Left'), user, answer('Down||Down')]);
  t.same(
    planned.filter(({ role }) => role === 'assistant').map(({ content }) => content),
    [
      '<think>UpUpLeftDown</think><answer>Up||Up</answer>',
      '<think>LeftDownDown</think><answer>Left</answer>',
      '<think>DownDown</think><answer>Down||Down</answer>',
    ],
  );
});

/** A run whose thoughts lose what they know at a rate, and whose success is what is left. */
function outcome(variant: string, seed: number, loss: number): ClaimOutcome {
  const steps = [1, 5, 10, 15, 20, 25];
  return {
    variant,
    seed,
    ended: 'finished',
    episodes: 100,
    seconds: 60,
    points: [0, 25].map(step => ({
      step,
      seconds: step,
      success: 1 - (loss * step) / 25,
      tags: {},
      sets: {},
    })),
    reasoning: steps.map(step => ({ step, miShare: 1 - (loss * step) / 25, entropy: 1, spread: 0.5 })),
  };
}

t.test('the page of the claim about thinking says what goes with success', async t => {
  const outcomes = [0, 1].flatMap(seed => [
    outcome('low entropy bonus', seed, 0.1 + seed / 100),
    outcome('high entropy bonus', seed, 0.8 + seed / 100),
  ]);
  const section = reasoningSection(outcomes).join('\n');
  t.match(section, /over 4 runs/);
  t.match(section, /\| MI share \| 1\.00 \|/);
  t.match(section, /\| entropy \| none: all alike \|/);
  t.match(section, /\| high entropy bonus \| fall, while entropy stays or rises \| −0\.\d\d \| \+0\.00 \|/);
  t.same(reasoningSection(outcomes.map(({ reasoning: _, ...rest }) => rest)), []);
});

t.test('the page of the claim about the generalist shows each environment next to its players', async t => {
  const claim = CLAIMS.find(({ name }) => name === 'generalist')!;
  const end = (variant: string, tags: { [tag: string]: number }): ClaimOutcome => ({
    ...outcome(variant, 0, 0),
    points: [{ step: 9, seconds: 9, success: 0.5, tags, sets: {} }],
  });
  const page = claimPage(
    claim,
    [end('generalist', { SudokuUnseen: 0.4 }), end('specialist in Sudoku', { SudokuUnseen: 0.6 })],
    'npm run bench:claims -- --claim 2',
    { SudokuUnseen: { random: 0.01, optimal: 1 } },
  );
  t.match(page, '| SudokuUnseen | 40.0 % | specialist in Sudoku: 60.0 % | 1.0 % | optimal: 100.0 % |');
});

t.test('the page of the pretrained chat model says what its data says', async t => {
  const read = (name: string) => readFileSync(new URL(`../../docs/results/${name}`, import.meta.url), 'utf8');
  const data = JSON.parse(read('data/chat-model.json')) as StoryData;
  t.equal(read('chat-model.md'), chatModelPage(data));
});
