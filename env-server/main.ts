import { flushCompileCache } from 'node:module';
import { setFlagsFromString } from 'node:v8';
import { Command, Option } from 'commander';
import { listenOnPort } from '../shared/http/addresses.ts';
import { outliveReaders } from '../shared/log-output.ts';
import { numberOption } from '../shared/number-option.ts';
import { ENV_SERVER, VERSION } from '../shared/program.ts';
import { printableLines } from '../shared/text.ts';
import {
  DECLARATIONS,
  ENVIRONMENT_SETTINGS,
  type EnvironmentSettings,
  flagOf,
  type Settings,
  variableOf,
} from './config/settings.ts';

// Server modules are imported where they are used, so that help and wrong settings are printed at once.

const V8_FLAGS = {
  start: ['--semi-space-growth-factor=1', '--no-maglev', '--no-turbofan'],
  /** The defaults. */
  service: ['--semi-space-growth-factor=2', '--maglev', '--turbofan'],
} as const;

function command(): Command {
  const program = new Command(ENV_SERVER)
    .description('Serves environments for reinforcement learning over HTTP and WebSocket.')
    .version(VERSION)
    .showHelpAfterError(`(${ENV_SERVER} --help lists the settings)`);
  program.command('serve', { isDefault: true, hidden: true }).action(async (_options, self: Command) => {
    const { config } = program.opts<{ config?: string }>();
    if (config !== undefined) await takeFrom(config, program);
    const settings = self.optsWithGlobals<Settings & EnvironmentSettings & { repair?: boolean }>();
    if (settings.repair) await repair(settings.data);
    await serve(settings, program);
  });
  program
    .command('hash-token')
    .description('read a token from standard input and print its SHA-256 for --tokens')
    .action(async () => {
      const { hashToken } = await import('./transports/access/auth.ts');
      console.log(hashToken((await readAll(process.stdin)).trim()));
    });
  program.addOption(
    new Option('--config <file>', 'YAML file of settings, named as the flags; flags and variables win').env(
      'RAGEN_CONFIG',
    ),
  );
  program.option(
    '--repair',
    'before serving, replace a damaged database in --data by a new one of its readable rows; the damaged files are kept',
  );
  for (const [name, declaration] of Object.entries(DECLARATIONS)) {
    const option = new Option(`--${flagOf(name)} <value>`, declaration.help)
      .env(variableOf(name))
      .default(declaration.default, declaration.unset);
    if (declaration.choices) option.choices([...declaration.choices]);
    else if (typeof declaration.default === 'number') {
      option.argParser(numberOption(declaration));
    }
    program.addOption(option);
  }
  return program;
}

/** Reads settings from a file where neither a flag nor a variable sets them. */
async function takeFrom(file: string, program: Command): Promise<void> {
  const { readConfigFile } = await import('./config/config-file.ts');
  for (const [name, value] of readConfigFile(file)) {
    if (program.getOptionValueSource(name) === 'default') {
      program.setOptionValueWithSource(name, value, 'config');
    }
  }
}

/**
 * Environments read their settings from process variables, so flags and file settings are written there, defaults
 * included. Clients that tokens keep apart share no files.
 */
async function tellEnvironments(settings: EnvironmentSettings, tokens: string): Promise<void> {
  for (const name of Object.keys(ENVIRONMENT_SETTINGS) as (keyof EnvironmentSettings)[]) {
    const value = settings[name];
    if (value === ENVIRONMENT_SETTINGS[name].default) delete process.env[variableOf(name)];
    else process.env[variableOf(name)] = String(value);
  }
  if (tokens !== '' && settings.dataDir === '') {
    const { NO_DATA } = await import('./environments/core/datasets/records.ts');
    process.env[variableOf('dataDir')] = NO_DATA;
  }
}

/**
 * Tunes V8 first for code that runs once, then for code that runs often. Nearly everything allocated during startup
 * stays alive, so the young generation would grow and keep its size; code optimized then is hardly called again.
 */
function tuneFor(phase: keyof typeof V8_FLAGS): void {
  for (const flag of V8_FLAGS[phase]) setFlagsFromString(flag);
}

async function serve(settings: Settings & EnvironmentSettings, program: Command): Promise<void> {
  tuneFor('start');
  await tellEnvironments(settings, settings.tokens);
  const portChosen = program.getOptionValueSource('port') !== 'default';
  const { address, stop } = await (settings.replicas === 1 ? serveAlone : serveTogether)(
    settings,
    portChosen,
  );
  // A supervisor may stop the server as soon as it reads the address.
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop(signal));
  // With a channel to its parent, the server ends when the parent does.
  if (process.connected) process.once('disconnect', () => stop('parent gone'));
  const [{ outliveRejections }, { outputLog }] = await Promise.all([
    import('./stopping.ts'),
    import('../shared/log-text.ts'),
  ]);
  // An earlier error ended the program.
  outliveRejections(outputLog(settings.logLevel));
  tuneFor('service');
  // Kept for the next start, no matter how this process ends.
  setImmediate(flushCompileCache);
  console.log(`ragen env-server listening on ${address} (playground at /, reference at /docs)`);
  const { BUILT_IN } = await import('./environments/registry.ts');
  for (const { spec, condition } of BUILT_IN) {
    condition?.().then(
      ({ summary }) => console.log(`${spec.id}: ${summary}`),
      (error: unknown) => console.error(error),
    );
  }
}

async function repair(data: string): Promise<void> {
  if (data === '') throw new Error('--repair needs --data, the folder of the database');
  const { describeRepair, repairDatabase } = await import('./persistence/repair.ts');
  const report = repairDatabase(data);
  console.log(report ? describeRepair(report) : `nothing is wrong with the database in ${data}`);
}

interface RunningServer {
  readonly address: string;
  stop(reason: string): void;
}

async function serveAlone(settings: Settings, portChosen: boolean): Promise<RunningServer> {
  const { Authenticator, refuseOpenServer } = await import('./transports/access/auth.ts');
  const { host, port } = settings;
  refuseOpenServer(host, new Authenticator(settings.tokens));
  const [{ createApp }, { stopperOf }] = await Promise.all([import('./app.ts'), import('./stopping.ts')]);
  const app = await createApp(settings);
  const reusePort = process.env.RAGEN_REUSE_PORT === '1';
  const address = await listenOnPort(port, portChosen, port => {
    const place = { host, port, reusePort };
    return app.server.listen(place);
  });
  return { address, stop: stopperOf(app, settings) };
}

async function serveTogether(
  settings: Settings & EnvironmentSettings,
  portChosen: boolean,
): Promise<RunningServer> {
  const { Authenticator, refuseOpenServer } = await import('./transports/access/auth.ts');
  const { host } = settings;
  refuseOpenServer(host, new Authenticator(settings.tokens));
  const { Replicas, reservePort } = await import('./replicas.ts');
  const port = await listenOnPort(settings.port, portChosen, port => reservePort(host, port, portChosen));
  const replicas = await Replicas.start(settings, port);
  const address = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
  return { address, stop: reason => replicas.stop(reason) };
}

async function readAll(stream: NodeJS.ReadableStream): Promise<string> {
  let text = '';
  for await (const chunk of stream) text += chunk;
  return text;
}

try {
  outliveReaders();
  await command().parseAsync();
} catch (error) {
  console.error(printableLines(`ragen-env-server: ${(error as Error).message}`));
  process.exit(1);
}
