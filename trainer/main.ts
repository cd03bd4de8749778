import { Command, Option } from 'commander';
import { LOG_LEVEL_VARIABLE, LOG_LEVELS } from '../shared/log.ts';
import { outliveReaders } from '../shared/log-output.ts';
import { numberOption, PORT_RANGE } from '../shared/number-option.ts';
import { printableLines } from '../shared/printable.ts';
import { ENV_SERVER, TRAINER } from '../shared/program.ts';
import { VERSION } from '../shared/version.ts';

/**
 * The action of a command: a function that is imported when it runs, so that help and wrong options print at once. It
 * takes the arguments and the options, and returns the exit status.
 */
const lazily =
  <Name extends string>(
    load: () => Promise<{ readonly [N in Name]: (...args: never[]) => Promise<number> }>,
    name: Name,
  ) =>
  async (...args: unknown[]): Promise<void> => {
    const { [name]: command } = await load();
    process.exitCode = await command(...(args.slice(0, -1) as never[]));
  };

/** Longest time from a failed command's message to its exit, in milliseconds. */
const LONGEST_EXIT_MS = 3000;

const POSITIVE = numberOption({ minimum: 1, integer: true });

const OVERRIDES_HELP = 'settings to change, e.g. seed=1';

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

program
  .command('init')
  .description('play an environment at random, and write a config for a small policy that learns it')
  .argument('<env_id>', 'environment of the server, e.g. FrozenLake-v0 or me/Guess-v0')
  .argument('[settings...]', 'settings of the environment, e.g. size=5')
  .option('--servers <url>', 'address of the environment server', 'http://127.0.0.1:8080')
  .option('--out <file>', 'file to write (default: the id of the environment, e.g. Guess-v0.yaml)')
  .option('--force', 'replace an existing file')
  .action(lazily(() => import('./commands/init/init.ts'), 'init'));

program
  .command('train')
  .description('train a policy: start a run from a config, or resume one from its folder')
  .argument('[config]', 'YAML config, e.g. configs/quickstart.yaml')
  .argument('[overrides...]', `${OVERRIDES_HELP} training.steps=20 optimizer.learning_rate=1e-3`)
  .option('--resume <run>', 'resume the run in this folder')
  .option('--dry-run', 'print resolved settings, sizes and memory, and stop')
  .action(lazily(() => import('./commands/train/train.ts'), 'train'));

program
  .command('verify-run')
  .description(
    'play the stored episodes of a run again, recompute what training derived from them, and compare',
  )
  .argument('<run>', 'run folder')
  .argument('[overrides...]', `${OVERRIDES_HELP} servers=[http://127.0.0.1:8080]`)
  .option('--json', 'print every verdict as JSON')
  .option('--quiet', 'print only the outcome')
  .action(lazily(() => import('./commands/verify/verify-run.ts'), 'verifyRunCommand'));

program
  .command('rescore')
  .description('reward the stored episodes of a run with a function, without playing')
  .argument('<run>', 'run folder')
  .requiredOption('--reward <file>', 'TypeScript or JavaScript file that exports reward(episode)')
  .addOption(
    new Option('--mode <mode>', 'add its rewards to the stored ones, or replace those')
      .choices(['add', 'replace'])
      .default('replace'),
  )
  .option('--out <file>', 'file for the new returns, one episode a line')
  .option('--json', 'print the table as JSON')
  .action(lazily(() => import('./commands/verify/rescore.ts'), 'rescoreCommand'));

program
  .command('demonstrations')
  .description("let the player of a config's warm_start play, and write the conversations as JSON Lines")
  .argument('<config>', 'YAML config; without warm_start the optimal player plays')
  .argument('[overrides...]', `${OVERRIDES_HELP} warm_start.episodes=1000`)
  .requiredOption('--out <file>', 'file to write, e.g. demonstrations.jsonl')
  .option('--only-success', 'leave out episodes without success')
  .option('--policy <folder>', 'policy that plays instead, e.g. runs/a-001/checkpoints/step-000100/policy')
  .option('--attempts <k>', 'episodes of each level that the policy plays', Number)
  .action(lazily(() => import('./commands/demonstrations.ts'), 'demonstrations'));

program
  .command('sft')
  .description("supervised learning alone: from a config's warm_start, or from files of conversations")
  .argument('<config>', 'YAML config with a warm_start section')
  .argument('[overrides...]', `${OVERRIDES_HELP} warm_start.epochs=4`)
  .option(
    '--data <file>',
    'JSON Lines file of conversations to learn instead; repeat it for more',
    (file: string, others: string[] = []) => [...others, file],
  )
  .option('--dry-run', 'print resolved settings, sizes and memory, and stop')
  .action(lazily(() => import('./commands/train/train.ts'), 'supervise'));

program
  .command('merge-lora')
  .description('write an adapter and its base as one model')
  .argument('<adapter>', "adapter folder in PEFT's layout, e.g. runs/lora-001/checkpoints/step-000100/policy")
  .requiredOption('--out <folder>', 'folder to write the model to')
  .option('--base <folder>', 'folder of the base (default: the one that the adapter names)')
  .option('--type <type>', 'F32 or BF16 (default: that of the base)')
  .action(lazily(() => import('./commands/merge-lora.ts'), 'mergeLora'));

program
  .command('push')
  .description('send a model or adapter to the Hugging Face Hub, with a model card made from its run')
  .argument('<target>', 'run (its newest checkpoint), checkpoint, or folder of a model or adapter')
  .argument('<name>', 'organization/name on the Hub')
  .option('--private', "make a new repository private (default: the organization's setting)")
  .option('--license <id>', 'license for the model card, e.g. apache-2.0')
  .option('--message <text>', 'title of the commit')
  .action(lazily(() => import('./commands/hub/push.ts'), 'push'));

program
  .command('serve')
  .description("serve a policy over OpenAI's API: chat and text completions, streamed or not")
  .argument(
    '<target>',
    'folder of a run, checkpoint or model, e.g. runs/quickstart-001, or a model of the Hub: organization/name',
  )
  .option('--host <address>', 'address to listen on; any but loopback needs RAGEN_SERVE_TOKEN', '127.0.0.1')
  .option('--port <port>', 'port to listen on; 0 takes a free one', numberOption(PORT_RANGE), 8000)
  .option('--name <name>', 'name of the model in requests (default: that of the folder)')
  .option(
    '--adapter <name=folder>',
    'LoRA adapter to load; repeat it for more',
    (adapter: string, others: string[]) => [...others, adapter],
    [],
  )
  .option('--base <folder>', 'folder of the base, if the target is an adapter')
  .option('--context <tokens>', 'maximum tokens of prompt and response together', POSITIVE)
  .option('--workers <count>', 'threads that share the requests (default: one a core)', POSITIVE)
  .option('--threads <count>', "threads of one worker's matrix products", POSITIVE)
  .option('--runtime <name>', 'auto, onnx or webgpu')
  .option('--max-streams <count>', 'maximum responses at once; more are refused with 429', POSITIVE, 256)
  .option('--max-adapters <count>', 'maximum adapters at once', POSITIVE, 8)
  .option('--tinker', 'also train LoRA adapters for clients of the Tinker API, at /api/v1')
  .option(
    '--max-models <count>',
    'maximum adapters that are trained at once, the last for a second key',
    POSITIVE,
    5,
  )
  .option('--checkpoints <folder>', "folder of the trained adapters' checkpoints", 'runs/tinker')
  .option('--max-checkpoint-mb <MiB>', 'disk space for that folder', POSITIVE, 16_384)
  .option('--log-level <level>', 'silent, error, warn, info or debug', 'warn')
  .action(lazily(() => import('./commands/serve.ts'), 'serve'));

program
  .command('sweep')
  .description('train a list of runs: variants, seeds, grids; skips finished runs when started again')
  .argument('<file>', 'YAML file of the sweep, e.g. configs/sweeps/sokoban-algorithms.yaml')
  .argument('[overrides...]', `${OVERRIDES_HELP} training.steps=20, for all runs`)
  .option('--dry-run', 'list the runs and stop')
  .action(lazily(() => import('./commands/sweep/sweep.ts'), 'sweep'));

program
  .command('dashboard')
  .description('show runs in the browser: success, episodes, health')
  .argument('[runs]', 'folder of run folders', 'runs')
  .option('--server <url>', 'environment server in which to continue episodes')
  .option('--port <port>', 'port to listen on (default: 8090, or a free one)', numberOption(PORT_RANGE))
  .option('--host <address>', 'loopback address to listen on', '127.0.0.1')
  .option('--allowed-hosts <names>', 'further names for the header Host, separated by commas', '')
  .option('--export <folder>', 'write the pages as files for any web server, and stop')
  .option('--leaderboard <file>', 'YAML or JSON list of published results, each with its source')
  .option(
    '--authors <file>',
    'JSON file of authors, {"SHA256:…": "name"}: only their signed results are listed',
  )
  .action(lazily(() => import('./commands/dashboard.ts'), 'dashboard'));

program
  .command('view')
  .description('show trajectories of TRL, verl, RAGEN, verifiers or ATIF in the browser')
  .argument('<files...>', 'files or folders of them, e.g. rollouts/10.jsonl, completions, results.jsonl')
  .option('--port <port>', 'port to listen on (default: 8090, or a free one)', numberOption(PORT_RANGE))
  .action(lazily(() => import('./commands/dashboard.ts'), 'view'));

program
  .command('evaluate')
  .description('play the validation levels and print success with its confidence interval')
  .argument('<target>', 'run folder, or YAML config for reference policies and endpoints')
  .argument('[overrides...]', `${OVERRIDES_HELP} validation.episodes=1000`)
  .option(
    '--policy <name>',
    'player: checkpoint, the folder of a model or checkpoint, a .gguf file, random, optimal, endpoint; repeat it to compare (default: checkpoint; for a config the model of policy.init)',
    (name: string, others: string[] = []) => [...others, name],
  )
  .option('--attempts <k>', 'attempts at each level by policies that sample, for pass@k', Number, 1)
  .option('--output <folder>', 'write table, JSON and every episode there')
  .option(
    '--sign <author>',
    'sign the results of a run with your key for a leaderboard, and write them into its folder',
  )
  .option('--json', 'print JSON instead of a table')
  .action(lazily(() => import('./commands/evaluate/evaluate.ts'), 'evaluate'));

program
  .command('diagnose')
  .description(
    'play the groups that training would play next, and print collapse metrics and gradients, without training',
  )
  .argument(
    '<target>',
    'run folder (its newest checkpoint), or a checkpoint of a run, e.g. runs/a/checkpoints/step-000100',
  )
  .argument('[overrides...]', `${OVERRIDES_HELP} rollout.env_groups=32 rollout.group_size=8`)
  .option('--json', 'print every metric and table as JSON')
  .action(lazily(() => import('./commands/diagnose.ts'), 'diagnose'));

const PLAYING = ['train', 'demonstrations', 'sft', 'sweep', 'evaluate', 'diagnose'];
for (const command of program.commands.filter(command => PLAYING.includes(command.name()))) {
  command
    .option('--quiet', 'print only the result: --log-level silent')
    .addOption(
      new Option(
        '--log-level <level>',
        'warn: warnings; info: also progress; debug: also JSON lines with timings',
      )
        .choices(LOG_LEVELS)
        .env(LOG_LEVEL_VARIABLE)
        .default('info'),
    );
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
