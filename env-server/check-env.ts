import { Command } from 'commander';
import { checkEnvironment } from './environments/core/checker/checker.ts';
import { formatReport } from './environments/core/checker/play.ts';
import { createRegistry } from './environments/registry.ts';

/** `npm run check-env -- <id>…`: checks that environments keep their contract. Exits with 1 when one does not. */
const program = new Command('check-env')
  .description('Checks that environments keep their contract; all of them when none is named.')
  .argument('[ids...]', 'environment ids, e.g. Sokoban-v0')
  .option('--episodes <number>', 'episodes of each configuration', Number, 4)
  .option('--steps <number>', 'maximum steps of an episode', Number, 40)
  .option('--json', 'print the reports as JSON')
  .parse();

const { episodes, steps, json } = program.opts<{ episodes: number; steps: number; json?: boolean }>();
const registry = createRegistry();
try {
  const environments = program.args.length > 0 ? program.args.map(id => registry.get(id)) : registry.list();
  const reports = [];
  for (const environment of environments) {
    const report = await checkEnvironment(environment, { episodes, steps });
    reports.push(report);
    if (!json) console.log(formatReport(report));
  }
  if (json) console.log(JSON.stringify(reports, null, 2));
  process.exitCode = reports.every(report => report.passed) ? 0 : 1;
} catch (error) {
  program.error((error as Error).message);
}
