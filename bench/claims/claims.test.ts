import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { loadRunSettings } from '../../trainer/config/load.ts';
import { type Claim, replaceOverrides } from './claim.ts';
import { CLAIMS } from './claims.ts';
import type { ClaimOutcome } from './outcomes.ts';
import { SMOLLM2 } from './published-model.ts';
import { QUICK_CLAIMS } from './quick.ts';
import { claimPage, meanCurves } from './report.ts';
import { ranks, reasoningSection, spearman } from './thinking.ts';
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

/** A run with thoughts that lose their information at a rate; its success is what is left. */
function outcome(variant: string, seed: number, loss: number): ClaimOutcome {
  const steps = [1, 5, 10, 15, 20, 25];
  return {
    variant,
    seed,
    ended: 'finished',
    episodes: 100,
    seconds: 60,
    validated: { episodes: 100, sets: {}, tags: { SudokuUnseen: 100 } },
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
    [end('generalist', { SudokuUnseen: 0.4 }), end('Sudoku alone', { SudokuUnseen: 0.6 })],
    'npm run bench:claims -- --claim 2',
    { SudokuUnseen: { random: 0.01, optimal: 1 } },
  );
  t.match(
    page,
    '| SudokuUnseen | 40.0 % (30.9–49.8) | Sudoku alone: 60.0 % (50.2–69.1) | 1.0 % | optimal: 100.0 % |',
  );
});

t.test('a claim with one seed has intervals over episodes, with several over the seeds', async t => {
  const claim: Claim = { ...CLAIMS[0], pairs: [['a', 'b']] };
  const page = (seeds: readonly number[]) =>
    claimPage(
      claim,
      seeds.flatMap(seed => [outcome('a', seed, 0.5 + seed / 100), outcome('b', seed, 0.25)]),
      'npm run bench:claims',
    );
  const one = page([0]);
  t.match(one, /Success with seed 0 alone, and Wilson’s 95 % interval/);
  t.match(one, /\| a \| 100\.0 % \(96\.3–100\.0\) \| 50\.0 % \(40\.4–59\.6\) \|/);
  t.match(one, /^- b − a: 25\.0 \(12\.0 to 38\.0\) after equal iterations; /m);
  t.match(one, 'All runs went to their last iteration');
  const late = { ...outcome('a', 0, 0.5), ended: 'time_limit' };
  t.match(claimPage(claim, [late], 'x'), 'Ended before their last iteration: a with seed 0 (time_limit).');
  const two = { ...outcome('a', 0, 0.5), workers: 2 };
  t.match(claimPage(claim, [two], 'x'), 'however long it took. Each: 2 workers.');
  const others = [two, { ...outcome('b', 0, 0.5), workers: 1 }, { ...outcome('b', 1, 0.5), workers: 1 }];
  t.match(claimPage(claim, others, 'x'), 'however long it took. a: 2 workers. b: one worker.');
  const several = page([0, 1, 2]);
  t.match(several, /over 3 seeds \(0, 1, 2\): mean and Student’s 95 % interval/);
  t.match(several, /^- b − a: 26\.0 \(25\.0 to 27\.0, p 0\.250\) after equal iterations; /m);
});

t.test('a curve is the mean of all seeds, those that ended early or began late included', async t => {
  const run = (seed: number, points: readonly [step: number, seconds: number, success: number][]) => ({
    ...outcome('a', seed, 0),
    points: points.map(([step, seconds, success]) => ({ step, seconds, success, tags: {}, sets: {} })),
  });
  // The first begins after the second has ended, by minute.
  const slow = run(0, [
    [0, 120, 0.25],
    [10, 180, 0.5],
    [20, 240, 0.75],
  ]);
  const brief = run(1, [
    [0, 30, 0.25],
    [10, 60, 0.75],
  ]);
  t.same(
    meanCurves([slow, brief], ({ step }) => step),
    [
      {
        name: 'a',
        points: [
          [0, 25],
          [10, 62.5],
          [20, 75],
        ],
      },
    ],
  );
  t.same(
    meanCurves([slow, brief], ({ seconds }) => seconds / 60),
    [
      {
        name: 'a',
        points: [
          [2, 50],
          [3, 62.5],
          [4, 75],
        ],
      },
    ],
  );
});

t.test(
  'runs of claims have settings that the trainer takes, short forms at most 20 minutes a seed',
  async t => {
    for (const claim of [...CLAIMS, ...QUICK_CLAIMS]) {
      let seconds = 0;
      for (const { config, overrides, warmStart } of claim.runs) {
        const filled = overrides.map(text =>
          text.replaceAll('{seed}', '0').replaceAll('{folder}', '/runs').replaceAll(SMOLLM2, '/model.gguf'),
        );
        const { training, warm_start } = loadRunSettings(config, filled);
        if (warmStart) t.ok(warm_start !== null);
        else seconds += training.max_seconds ?? Number.POSITIVE_INFINITY;
      }
      t.ok(seconds < Number.POSITIVE_INFINITY, claim.name);
      if (QUICK_CLAIMS.includes(claim)) t.ok(seconds <= 20 * 60, `${claim.name}: ${seconds} s`);
    }
    t.same(
      QUICK_CLAIMS.map(({ number }) => number),
      CLAIMS.map(({ number }) => number),
    );
  },
);

t.test('settings replace those of the same name and keep their order', async t => {
  t.same(replaceOverrides(['a=1', 'b=2', 'a.c=3'], ['a=null', 'd=4']), ['b=2', 'a.c=3', 'a=null', 'd=4']);
});

t.test('pages of claims wrap at 120 columns, and reference/results.md links every page', async t => {
  for (const claim of [...CLAIMS, ...QUICK_CLAIMS])
    for (const seeds of [[0], [0, 1, 2]]) {
      const outcomes = seeds.flatMap(seed => claim.runs.map(({ variant }) => outcome(variant, seed, 0.5)));
      const prose = claimPage(claim, outcomes, 'npm run bench:claims').replaceAll(/^```[\s\S]*?^```$/gm, '');
      t.same(
        prose.split('\n').filter(line => line.length > 120 && !/^[|!]/.test(line)),
        [],
        claim.name,
      );
    }
  const folder = fileURLToPath(new URL('../../docs/results', import.meta.url));
  const summary = readFileSync(`${folder}/../reference/results.md`, 'utf8');
  for (const name of readdirSync(folder).filter(name => name.endsWith('.md'))) {
    t.ok(summary.includes(`](../results/${name})`), `${name} is summarized in reference/results.md`);
  }
});
