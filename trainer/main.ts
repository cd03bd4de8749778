import { Command } from 'commander';
import { LOG_LEVEL_VARIABLE } from '../shared/log.ts';
import { outliveReaders } from '../shared/log-output.ts';
import { ENV_SERVER, TRAINER, VERSION } from '../shared/program.ts';
import { printableLines } from '../shared/text.ts';
import { addCommand, type COMMANDS } from './commands/options.ts';

/** Longest time from a failed command's message to its exit, in milliseconds. */
const LONGEST_EXIT_MS = 3000;

const program = new Command(TRAINER)
  .description('Trains language-model policies as agents in the environments of a server.')
  .version(VERSION)
  .showHelpAfterError(`(${TRAINER} --help lists the commands)`)
  .addHelpText(
    'after',
    [
      '',
      'Examples:',
      ...[
        'init me/Guess-v0',
        'train ragen:quickstart',
        'train ragen:sokoban-nano seed=1 run.name=sokoban-seed-1',
        'train ragen:sokoban-nano recipe=grpo optimizer.learning_rate=2e-4',
        'train --resume runs/sokoban-seed-1',
        'diagnose runs/sokoban-seed-1',
        'verify-run runs/sokoban-seed-1',
        'evaluate runs/sokoban-seed-1 --policy checkpoint --policy random --policy optimal',
      ].map(example => `  ${TRAINER} ${example}`),
      '',
      `Commands that play need a running environment server (${ENV_SERVER} --port 8080); set its address with \`servers\`.`,
      '`ragen:NAME` is a config that comes with ragen; a path is a file of yours.',
    ].join('\n'),
  );

/** The function of each command, imported when it runs, so that help and wrong options print at once. */
const RUN: {
  readonly [Name in keyof typeof COMMANDS]: () => Promise<(...args: never[]) => Promise<number>>;
} = {
  init: async () => (await import('./commands/init/init.ts')).init,
  train: async () => (await import('./commands/train/train.ts')).train,
  'verify-run': async () => (await import('./commands/verify/verify-run.ts')).verifyRunCommand,
  rescore: async () => (await import('./commands/verify/rescore.ts')).rescoreCommand,
  demonstrations: async () => (await import('./commands/demonstrations.ts')).demonstrations,
  sft: async () => (await import('./commands/train/train.ts')).supervise,
  'merge-lora': async () => (await import('./commands/merge-lora.ts')).mergeLora,
  push: async () => (await import('./commands/hub/push.ts')).push,
  serve: async () => (await import('./commands/serve.ts')).serve,
  sweep: async () => (await import('./commands/sweep/sweep.ts')).sweep,
  dashboard: async () => (await import('./commands/dashboard.ts')).dashboard,
  view: async () => (await import('./commands/dashboard.ts')).view,
  evaluate: async () => (await import('./commands/evaluate/evaluate.ts')).evaluate,
  diagnose: async () => (await import('./commands/diagnose.ts')).diagnose,
};
for (const name of Object.keys(RUN) as (keyof typeof COMMANDS)[]) {
  addCommand(program, name, async (...args) => {
    const command = await RUN[name]();
    process.exitCode = await command(...(args.slice(0, -1) as never[]));
  });
}

program.hook('preAction', async (_program, command) => {
  const { logLevel } = command.opts();
  if (logLevel !== undefined) process.env[LOG_LEVEL_VARIABLE] = logLevel;
  const { dumpKinds } = await import('./tensor/runtime/dump.ts');
  dumpKinds();
});

try {
  outliveReaders();
  await program.parseAsync();
} catch (error) {
  const { ConfigError } = await import('../shared/config.ts');
  const { message } = error as Error;
  console.error(printableLines(error instanceof ConfigError ? message : `ragen: ${message}`));
  process.exitCode = 1;
  // Remaining work, such as a thread or a read that never ends, must not keep a failed program alive.
  setTimeout(() => process.exit(), LONGEST_EXIT_MS).unref();
}
