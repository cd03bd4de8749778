/**
 * Looks for template collapse where rewards are mostly noise: `npm run bench:collapse -- FOLDER`. A small policy learns from random
 * pulls of Bandit's arms with thoughts of our own; from there runs of GRPO continue, and the trainer measures their thoughts. The
 * same FOLDER continues what was cut off. Writes docs/results/collapse.md and its data. Takes about two minutes of one core.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { wrapped } from '../docs/generator/markdown.ts';
import { Random } from '../shared/random.ts';
import { completeRun, ROOT, trainerArguments } from './claims/run-trainer.ts';
import { collapsePage, outcomeOf } from './collapse/report.ts';
import { withThoughts } from './collapse/thoughts.ts';
import { CONFIG, LEARNS, SHARED, VARIANTS, WARM } from './collapse/variants.ts';
import { ServerProcess } from './server-process.ts';

const RESULTS = join(ROOT, 'docs/results');
const [, , where] = process.argv;
if (where === undefined) throw new Error('usage: npm run bench:collapse -- FOLDER');
const folder = resolve(where);
mkdirSync(folder, { recursive: true });
const server = new ServerProcess([]);
try {
  await server.start();
  const warm = join(folder, 'warm', 'checkpoints');
  if (!existsSync(warm)) await teach();
  const start = join(warm, readdirSync(warm).sort().at(-1)!, 'policy');
  const outcomes = [];
  for (const { name, settings } of VARIANTS) {
    const run = name.replaceAll(/\W+/g, '-');
    const overrides = [`policy.init=${JSON.stringify(start)}`, ...SHARED, ...LEARNS, ...settings];
    await completeRun(
      trainerArguments({
        command: 'train',
        config: CONFIG,
        overrides,
        folder,
        name: run,
        server: server.origin,
      }),
    );
    outcomes.push(outcomeOf(join(folder, run), name));
  }
  writeFileSync(join(RESULTS, 'data/collapse.json'), `${JSON.stringify(outcomes, null, 2)}\n`);
  writeFileSync(join(RESULTS, 'collapse.md'), wrapped(collapsePage(outcomes)));
} finally {
  await server.end('SIGTERM');
}

/** Teaches the policy to think, from random pulls with thoughts. */
async function teach(): Promise<void> {
  const pulls = join(folder, 'pulls.jsonl');
  const data = join(folder, 'thoughts.jsonl');
  const overrides = [...SHARED, ...WARM];
  const servers = `servers=${JSON.stringify([{ url: server.origin }])}`;
  await completeRun(['demonstrations', CONFIG, ...overrides, servers, '--out', pulls]);
  writeFileSync(data, withThoughts(readFileSync(pulls, 'utf8'), Random.fromSeed(1)));
  const run = { command: 'sft', config: CONFIG, overrides, folder, name: 'warm' } as const;
  await completeRun([...trainerArguments({ ...run, server: server.origin }), '--data', data]);
}
