import { type Command, Option } from 'commander';
import { LOG_LEVEL_VARIABLE, LOG_LEVELS, type LogLevel } from '../../shared/log.ts';
import { numberOption, PORT_RANGE } from '../../shared/number-option.ts';
import type { RuntimeChoice } from '../tensor/runtime/runtime.ts';

/** An option of a command: its help, its parser and the type of its value. */
interface OptionOf<Value> {
  readonly help: string;
  /** Placeholder of its value in the help; absent for a switch. */
  readonly argument?: string;
  readonly preset?: Value;
  readonly parse?: (text: string, before: never) => Value;
  readonly choices?: readonly string[];
  /** Environment variable in its place. */
  readonly variable?: string;
  readonly isNeeded?: boolean;
}

const flag = (help: string): OptionOf<boolean | undefined> => ({ help });
const text = <Preset extends string | undefined = undefined>(
  argument: string,
  help: string,
  preset?: Preset,
): OptionOf<string | Preset> => ({ argument, help, preset });
const needed = (argument: string, help: string): OptionOf<string> => ({ argument, help, isNeeded: true });
const number = <Preset extends number | undefined = undefined>(
  argument: string,
  help: string,
  preset?: Preset,
  parse: (text: string) => number = numberOption({ minimum: 1, integer: true }),
): OptionOf<number | Preset> => ({ argument, help, preset, parse });
const list = (argument: string, help: string): OptionOf<readonly string[] | undefined> => ({
  argument,
  help,
  parse: (text: string, before: readonly string[] = []) => [...before, text],
});
const choice = <Name extends string>(argument: string, help: string, choices: readonly Name[]) =>
  ({ argument, help, choices }) as OptionOf<Name | undefined>;

const port = number(
  '<port>',
  'port to listen on (default: 8090, or a free one)',
  undefined,
  numberOption(PORT_RANGE),
);
const OVERRIDES = 'settings to change, e.g. seed=1';
const dryRun = flag('print resolved settings, sizes and memory, and stop');
/** Options of commands that play or learn. */
const shown = {
  quiet: flag('print only the result: --log-level silent'),
  logLevel: {
    ...choice(
      '<level>',
      'warn: warnings; info: also progress; debug: also JSON lines with timings',
      LOG_LEVELS,
    ),
    preset: 'info',
    variable: LOG_LEVEL_VARIABLE,
  } as OptionOf<LogLevel | undefined>,
};

/** Every command by its name: what it does, its arguments, and its options: `dryRun` is `--dry-run`. */
export const COMMANDS = {
  init: {
    help: 'play an environment at random, and write a config for a small policy that learns it',
    takes: {
      '<env_id>': 'environment of the server, e.g. FrozenLake-v0 or me/Guess-v0',
      '[settings...]': 'settings of the environment, e.g. size=5',
    },
    options: {
      servers: text('<url>', 'address of the environment server', 'http://127.0.0.1:8080'),
      out: text('<file>', 'file to write (default: the id of the environment, e.g. Guess-v0.yaml)'),
      demonstrations: text('<file>', 'JSON Lines to imitate first: {"seed": 7, "actions": ["…"]} an episode'),
      force: flag('replace an existing file'),
    },
  },
  train: {
    help: 'train a policy: start a run from a config, or resume one from its folder',
    takes: {
      '[config]': 'YAML config, e.g. configs/quickstart.yaml',
      '[overrides...]': `${OVERRIDES} training.steps=20 optimizer.learning_rate=1e-3`,
    },
    options: { resume: text('<run>', 'resume the run in this folder'), dryRun, ...shown },
  },
  'verify-run': {
    help: 'play the stored episodes of a run again, recompute what training derived from them, and compare',
    takes: { '<run>': 'run folder', '[overrides...]': `${OVERRIDES} servers=[http://127.0.0.1:8080]` },
    options: { json: flag('print every verdict as JSON'), quiet: flag('print only the outcome') },
  },
  rescore: {
    help: 'reward the stored episodes of a run with a function, without playing',
    takes: { '<run>': 'run folder' },
    options: {
      reward: needed('<file>', 'TypeScript or JavaScript file that exports reward(episode)'),
      mode: {
        ...choice('<mode>', 'add its rewards to the stored ones, or replace those', ['add', 'replace']),
        preset: 'replace',
      } as OptionOf<'add' | 'replace' | undefined>,
      out: text('<file>', 'file for the new returns, one episode a line'),
      json: flag('print the table as JSON'),
    },
  },
  demonstrations: {
    help: "let the player of a config's warm_start play, and write the conversations as JSON Lines",
    takes: {
      '<config>': 'YAML config; without warm_start the optimal player plays',
      '[overrides...]': `${OVERRIDES} warm_start.episodes=1000`,
    },
    options: {
      out: needed('<file>', 'file to write, e.g. demonstrations.jsonl'),
      onlySuccess: flag('leave out episodes without success'),
      policy: text('<folder>', 'policy that plays instead, e.g. runs/a-001/checkpoints/step-000100/policy'),
      attempts: number('<k>', 'episodes of each level that the policy plays'),
      ...shown,
    },
  },
  sft: {
    help: "supervised learning alone: from a config's warm_start, or from files of conversations",
    takes: {
      '<config>': 'YAML config with a warm_start section',
      '[overrides...]': `${OVERRIDES} warm_start.epochs=4`,
    },
    options: {
      data: list('<file>', 'JSON Lines file of conversations to learn instead; repeat it for more'),
      dryRun,
      ...shown,
    },
  },
  'merge-lora': {
    help: 'write an adapter and its base as one model',
    takes: {
      '<adapter>': "adapter folder in PEFT's layout, e.g. runs/lora-001/checkpoints/step-000100/policy",
    },
    options: {
      out: needed('<folder>', 'folder to write the model to'),
      base: text('<folder>', 'folder of the base (default: the one that the adapter names)'),
      type: choice('<type>', 'number type of the output (default: that of the base)', ['F32', 'BF16']),
    },
  },
  push: {
    help: 'send a model or adapter to the Hugging Face Hub, with a model card made from its run',
    takes: {
      '<target>': 'run (its newest checkpoint), checkpoint, or folder of a model or adapter',
      '<name>': 'organization/name on the Hub',
    },
    options: {
      private: flag("make a new repository private (default: the organization's setting)"),
      license: text('<id>', 'license for the model card, e.g. apache-2.0'),
      message: text('<text>', 'title of the commit'),
    },
  },
  serve: {
    help: "serve a policy over OpenAI's API: chat and text completions, streamed or not",
    takes: {
      '<target>':
        'folder of a run, checkpoint or model, e.g. runs/quickstart-001, or a model of the Hub: organization/name',
    },
    options: {
      host: text('<address>', 'address to listen on; any but loopback needs RAGEN_SERVE_TOKEN', '127.0.0.1'),
      port: number('<port>', 'port to listen on; 0 takes a free one', 8000, numberOption(PORT_RANGE)),
      name: text('<name>', 'name of the model in requests (default: that of the folder)'),
      adapter: list('<name=folder>', 'LoRA adapter to load; repeat it for more'),
      base: text('<folder>', 'folder of the base, if the target is an adapter'),
      context: number('<tokens>', 'maximum tokens of prompt and response together'),
      workers: number('<count>', 'threads that share the requests (default: one a core)'),
      threads: number('<count>', "threads of one worker's matrix products"),
      runtime: text('<name>', 'auto, onnx or webgpu') as OptionOf<RuntimeChoice | undefined>,
      maxStreams: number('<count>', 'maximum responses at once; more are refused with 429', 256),
      maxAdapters: number('<count>', 'maximum adapters at once', 8),
      tinker: flag('also train LoRA adapters for clients of the Tinker API, at /api/v1'),
      maxModels: number('<count>', 'maximum adapters that are trained at once, the last for a second key', 5),
      checkpoints: text('<folder>', "folder of the trained adapters' checkpoints", 'runs/tinker'),
      maxCheckpointMb: number('<MiB>', 'disk space for that folder', 16_384),
      logLevel: text('<level>', 'silent, error, warn, info or debug', 'warn') as OptionOf<LogLevel>,
    },
  },
  sweep: {
    help: 'train a list of runs: variants, seeds, grids; skips finished runs when started again',
    takes: {
      '<file>': 'YAML file of the sweep, e.g. configs/sweeps/sokoban-algorithms.yaml',
      '[overrides...]': `${OVERRIDES} training.steps=20, for all runs`,
    },
    options: { dryRun: flag('list the runs and stop'), ...shown },
  },
  dashboard: {
    help: 'show runs in the browser: success, episodes, health',
    takes: { '[runs]': 'folder of run folders (default: runs)' },
    options: {
      server: text('<url>', 'environment server in which to continue episodes'),
      port,
      host: text('<address>', 'loopback address to listen on', '127.0.0.1'),
      allowedHosts: text('<names>', 'further names for the header Host, separated by commas', ''),
      export: text('<folder>', 'write the pages as files for any web server, and stop'),
      leaderboard: text('<file>', 'YAML or JSON list of published results, each with its source'),
      authors: text(
        '<file>',
        'JSON file of authors, {"SHA256:…": "name"}: only their signed results are listed',
      ),
    },
  },
  view: {
    help: 'show trajectories of TRL, verl, RAGEN, verifiers or ATIF in the browser',
    takes: { '<files...>': 'files or folders of them, e.g. rollouts/10.jsonl, completions, results.jsonl' },
    options: { port },
  },
  evaluate: {
    help: 'play the validation levels and print success with its confidence interval',
    takes: {
      '<target>': 'run folder, or YAML config for reference policies and endpoints',
      '[overrides...]': `${OVERRIDES} validation.episodes=1000`,
    },
    options: {
      policy: list(
        '<name>',
        'player: checkpoint, the folder of a model or checkpoint, a .gguf file, random, optimal, endpoint; repeat it to compare (default: checkpoint; for a config the model of policy.init)',
      ),
      attempts: number('<k>', 'attempts at each level by policies that sample, for pass@k (default: 1)'),
      output: text('<folder>', 'write table, JSON and every episode there'),
      sign: text(
        '<author>',
        'sign the results of a run with your key for a leaderboard, and write them into its folder',
      ),
      json: flag('print JSON instead of a table'),
      ...shown,
    },
  },
  diagnose: {
    help: 'play the groups that training would play next, and print collapse metrics and gradients, without training',
    takes: {
      '<target>':
        'run folder (its newest checkpoint), or a checkpoint of a run, e.g. runs/a/checkpoints/step-000100',
      '[overrides...]': `${OVERRIDES} rollout.env_groups=32 rollout.group_size=8`,
    },
    options: { json: flag('print every metric and table as JSON'), ...shown },
  },
} as const;

type ValueOf<Given> = Given extends OptionOf<infer Value> ? Value : never;
type Values<Options> = { readonly [Name in keyof Options]: ValueOf<Options[Name]> };
type OptionalNames<Options> = {
  [Name in keyof Options]: undefined extends ValueOf<Options[Name]> ? Name : never;
}[keyof Options];

/** The given options of a command; those without a default may be absent. */
export type OptionsOf<
  Name extends keyof typeof COMMANDS,
  Options = (typeof COMMANDS)[Name]['options'],
> = Partial<Pick<Values<Options>, OptionalNames<Options>>> & Omit<Values<Options>, OptionalNames<Options>>;

/** Adds a command to the program. @param run its work, with the arguments and the options */
export function addCommand(
  program: Command,
  name: keyof typeof COMMANDS,
  run: (...args: unknown[]) => Promise<void>,
): void {
  const { help, takes, options } = COMMANDS[name];
  const command = program.command(name).description(help).action(run);
  for (const [argument, help] of Object.entries(takes)) command.argument(argument, help);
  for (const [name, given] of Object.entries<OptionOf<unknown>>(options)) {
    const { argument = '', help, preset, parse, choices, variable, isNeeded = false } = given;
    const long = name.replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`);
    const option = new Option(`--${long} ${argument}`.trim(), help).makeOptionMandatory(isNeeded);
    if (preset !== undefined) option.default(preset);
    if (parse) option.argParser(parse as (text: string, before: unknown) => unknown);
    if (choices) option.choices(choices);
    if (variable) option.env(variable);
    command.addOption(option);
  }
}
