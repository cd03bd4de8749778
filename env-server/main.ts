import { Command, InvalidArgumentError, Option } from 'commander';
import { createApp } from './app.ts';
import { readConfigFile } from './config-file.ts';
import { NO_DATA } from './environments/datasets/records.ts';
import { BUILT_IN } from './environments/registry.ts';
import { hashToken, refuseOpenServer } from './http/auth.ts';
import {
  DECLARATIONS,
  ENVIRONMENT_SETTINGS,
  type EnvironmentSettings,
  flagOf,
  type Settings,
  variableOf,
} from './settings.ts';

const MS_PER_S = 1000;
/** What the server gets to close after the last operation. */
const CLOSE_MS = 10_000;

function command(): Command {
  const program = new Command('ragen-env-server')
    .description('Serves environments for reinforcement learning over HTTP and WebSocket.')
    .showHelpAfterError();
  program.command('serve', { isDefault: true, hidden: true }).action(async (_options, self: Command) => {
    const { config } = program.opts<{ config?: string }>();
    if (config !== undefined) takeFrom(config, program);
    await serve(self.optsWithGlobals(), program);
  });
  program
    .command('hash-token')
    .description('read a token from standard input and print the sha256 that --tokens wants')
    .action(async () => console.log(hashToken((await readAll(process.stdin)).trim())));
  program.addOption(
    new Option(
      '--config <file>',
      'YAML file of settings: flags without their dashes; flags and variables win',
    ).env('RAGEN_CONFIG'),
  );
  for (const [name, declaration] of Object.entries(DECLARATIONS)) {
    const option = new Option(`--${flagOf(name)} <value>`, declaration.help)
      .env(variableOf(name))
      .default(declaration.default);
    if (declaration.choices) option.choices([...declaration.choices]);
    else if (typeof declaration.default === 'number') {
      option.argParser(text => parseNumber(text, declaration.minimum ?? 0, declaration.integer === true));
    }
    program.addOption(option);
  }
  return program;
}

function parseNumber(text: string, minimum: number, integer: boolean): number {
  const value = Number(text);
  if (text.trim() === '' || !(value >= minimum) || (integer && !Number.isInteger(value))) {
    throw new InvalidArgumentError(`Expected ${integer ? 'an integer' : 'a number'} of at least ${minimum}.`);
  }
  return value;
}

/** Takes settings from a file where neither a flag nor a variable gives them. */
function takeFrom(file: string, program: Command): void {
  for (const [name, value] of readConfigFile(file)) {
    if (program.getOptionValueSource(name) === 'default') {
      program.setOptionValueWithSource(name, value, 'config');
    }
  }
}

/** Environments read their settings from the variables of the process. Those whom tokens keep apart share no files. */
function tellEnvironments(settings: EnvironmentSettings, tokens: string): void {
  if (tokens !== '' && settings.dataDir === '') process.env[variableOf('dataDir')] = NO_DATA;
  for (const name of Object.keys(ENVIRONMENT_SETTINGS) as (keyof EnvironmentSettings)[]) {
    const value = settings[name];
    if (value !== ENVIRONMENT_SETTINGS[name].default) process.env[variableOf(name)] = value;
  }
}

async function serve(settings: Settings & EnvironmentSettings, program: Command): Promise<void> {
  tellEnvironments(settings, settings.tokens);
  const { server, sessions, authenticator, log, shutDown, keepSessions } = await createApp(settings);
  refuseOpenServer(settings.host, authenticator);
  const portChosen = program.getOptionValueSource('port') !== 'default';
  const address = await listen();
  console.log(`ragen env-server listening on ${address} (playground at /, reference at /docs)`);
  for (const { spec, condition } of BUILT_IN) {
    condition?.().then(
      ({ summary }) => console.log(`${spec.id}: ${summary}`),
      (error: unknown) => log.error(error),
    );
  }

  let stopping = false;
  const stop = (reason: string) => {
    if (stopping) {
      keepSessions();
      process.exit(1);
    }
    stopping = true;
    log.info(`${reason}: draining`);
    sessions.drain();
    setTimeout(async () => {
      const graceMs = settings.graceSeconds * MS_PER_S;
      setTimeout(() => process.exit(1), graceMs + CLOSE_MS).unref();
      await shutDown(graceMs);
      process.exit(0);
    }, settings.drainSeconds * MS_PER_S);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop(signal));
  // Started with a channel to its parent, it ends when the parent does.
  if (process.connected) process.once('disconnect', () => stop('parent gone'));

  async function listen(): Promise<string> {
    try {
      return await server.listen({ host: settings.host, port: settings.port });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE' || portChosen) throw error;
      console.log(`port ${settings.port} is taken; using a free one`);
      return server.listen({ host: settings.host, port: 0 });
    }
  }
}

async function readAll(stream: NodeJS.ReadableStream): Promise<string> {
  let text = '';
  for await (const chunk of stream) text += chunk;
  return text;
}

try {
  await command().parseAsync();
} catch (error) {
  console.error(`ragen-env-server: ${(error as Error).message}`);
  process.exit(1);
}
