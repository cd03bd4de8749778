import { existsSync, mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { closing } from '../../../shared/closing.ts';
import { parseOverride } from '../../../shared/config.ts';
import { readLogLevel } from '../../../shared/log.ts';
import { makeFolder, replaceFileSync } from '../../../shared/replace-file.ts';
import { isAuthorName } from '../../../shared/run-folder/signed-result.ts';
import { shellWord } from '../../../shared/text.ts';
import {
  isLibraryConfig,
  loadRunSettings,
  overriddenSettings,
  type SettingsPurpose,
} from '../../config/load.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { EndpointUsage } from '../../generation/endpoint/completions.ts';
import { openProgress } from '../../tracking/progress.ts';
import { writeEpisodes } from '../../tracking/trajectories.ts';
import { checkpointOf, latestCheckpoint, type TrainerState } from '../../training/run-folder/checkpoint.ts';
import { openRunFolder, type RunFolder } from '../../training/run-folder/run-folder.ts';
import { agentRollouts } from '../../training/setup/run-context.ts';
import { playValidation, validationPlan } from '../../training/validation.ts';
import { localSettings } from '../hub/local-models.ts';
import type { OptionsOf } from '../options.ts';
import { stopRequests } from '../processes/child-program.ts';
import { type EvaluationRow, evaluationRows, evaluationTable } from './evaluation.ts';
import { CHECKPOINT, hasWeights, openPlayer, type Player, playerFolders } from './players.ts';
import {
  openSigningKey,
  type PlayedMode,
  type SigningKey,
  signResults,
  weightsHash,
} from './sign-results.ts';

const HIDDEN = '***';

/** The record of an evaluation. */
interface Evaluation {
  readonly command: string;
  readonly date: string;
  readonly seconds: number;
  readonly rows: readonly EvaluationRow[];
  /** Training progress of the run's own policies, by their names in the rows. */
  readonly trained: ReadonlyMap<string, TrainerState>;
}

/** Saves an evaluation in the run's folder, where the leaderboard finds it. */
function saveEvaluation(run: RunFolder, { command, date, seconds, rows, trained }: Evaluation): void {
  const document = {
    date,
    command,
    seconds,
    rows: rows.map(row => {
      const state = trained.get(row.policy);
      if (!state) return row;
      const { step, sampledTokens, seconds } = state;
      return { ...row, trained: { step, sampled_tokens: sampledTokens, seconds } };
    }),
  };
  mkdirSync(run.evaluations, { recursive: true });
  const file = join(run.evaluations, `${date.replaceAll(':', '-')}.json`);
  replaceFileSync(file, `${JSON.stringify(document, null, 1)}\n`);
}

/** The command line in shell syntax: everything the result depends on, without tokens of servers. */
export function evaluateCommand(
  target: string,
  overrides: readonly string[],
  { policy, attempts }: { readonly policy: readonly string[]; readonly attempts: number },
): string {
  return [
    'evaluate',
    target,
    ...overrides.map(withoutTokens),
    ...policy.flatMap(name => ['--policy', name]),
    ...(attempts > 1 ? ['--attempts', String(attempts)] : []),
  ]
    .map(shellWord)
    .join(' ');
}

/** An override without tokens of servers: pages show the command to everyone who sees the run. */
function withoutTokens(override: string): string {
  const { path, value } = parseOverride(override);
  if (path[0] !== 'servers') return override;
  const shown =
    path.at(-1) === 'token'
      ? HIDDEN
      : JSON.stringify(value, (key, item) => (key === 'token' && item !== null ? HIDDEN : item));
  return `${path.join('.')}=${shown}`;
}

/**
 * The command `evaluate`: plays the validation levels of a run or a config, greedily and as sampled, and prints success
 * with its confidence interval.
 * @param target a run folder or a config file
 * @returns the exit status
 */
export async function evaluate(
  target: string,
  overrides: readonly string[],
  options: OptionsOf<'evaluate'>,
): Promise<number> {
  const { attempts = 1, output, policy = [CHECKPOINT] } = options;
  const progress = openProgress(process.stderr, options.quiet ? 'silent' : readLogLevel());
  const startedAt = performance.now();
  const withWeights = (await Promise.all(policy.map(hasWeights))).includes(true);
  const { settings, checkpoint, run } = readTarget(target, overrides, withWeights ? 'train' : 'play');
  const names = policy.map(name => (run ? name : modelNamedBy(name, settings)));
  const signed =
    options.sign === undefined ? undefined : { author: options.sign, key: signerOf(options.sign, run) };
  const played: PlayedMode[] = [];
  using requests = stopRequests(() => progress.note('stopping'));
  const { signal: stop } = requests;
  const { local } = await localSettings(settings, { progress, signal: stop });
  const folders = await playerFolders(names, { progress, signal: stop });
  const note = progress.note.bind(progress);
  const rows: EvaluationRow[] = [];
  const usage: UsageRow[] = [];
  const trained = new Map<string, TrainerState>();
  if (output !== undefined) makeFolder(output);
  for (const [i, name] of names.entries()) {
    const parts = { settings: local, checkpoint, note: progress.warn, stop };
    await using player = closing(await openPlayer(folders[i], parts));
    const own = run && player.weights !== undefined ? checkpointOf(run, player.weights) : undefined;
    if (own) trained.set(name, own.state);
    const identity = signed && (await signedIdentity(player, own?.state));
    for (const mode of player.modes) {
      const groupSize = mode.varied ? attempts : 1;
      const levels = settings.validation.episodes;
      note(`${name}: ${levels} levels${groupSize > 1 ? `, ${groupSize} attempts each` : ''}, ${mode.name}`);
      const whole = validationPlan(settings);
      const plan = { ...whole, sampling: { ...whole.sampling, temperature: mode.temperature }, groupSize };
      const { episodes } = await playValidation(
        agentRollouts(player.context, mode.agent, progress.warn),
        plan,
        stop,
      );
      rows.push(...evaluationRows(name, mode.name, episodes));
      if (identity) {
        const program = settings.rollout.agent !== null;
        played.push({ policy: name, mode: mode.name, ...identity, plan, program, episodes });
      }
      if (output !== undefined) {
        writeEpisodes(join(output, `${fileName(name)}-${fileName(mode.name)}.jsonl`), episodes);
      }
    }
    if (player.usage) usage.push(usageRow(name, settings, player.usage()));
  }
  const table = evaluationTable(rows);
  for (const row of usage) note(usageText(row));
  // Printed before anything is written: a full disk does not cost the result.
  console.log(options.json ? JSON.stringify(rows, null, 1) : evaluationTable(rows, process.stdout.columns));
  if (output !== undefined) {
    const { seed } = validationPlan(settings);
    const { episodes } = settings.validation;
    const document = { target, seed, levels: episodes, attempts, rows, usage };
    replaceFileSync(join(output, 'evaluation.json'), `${JSON.stringify(document, null, 1)}\n`);
    replaceFileSync(join(output, 'evaluation.txt'), `${[table, ...usage.map(usageText)].join('\n')}\n`);
  }
  if (run) {
    const command = evaluateCommand(target, overrides, { policy: names, attempts });
    const date = new Date().toISOString();
    saveEvaluation(run, { command, date, seconds: (performance.now() - startedAt) / 1000, rows, trained });
    if (signed)
      note(`signed with ${signResults(run, played, { ...signed, command, date })} in ${run.result}`);
  }
  return 0;
}

/**
 * The author's key.
 * @throws Error where nothing could be signed, before anything is played
 */
function signerOf(author: string, run: RunFolder | undefined): SigningKey {
  if (!run) throw new Error('--sign takes the folder of a run: result.json is written there');
  if (!isAuthorName(author))
    throw new Error('--sign: the name of an author has 1 to 100 characters, none of them invisible');
  return openSigningKey();
}

/**
 * Description of a player in a signed result.
 * @throws Error for an environment without replay
 */
async function signedIdentity(
  { context: { tags }, weights }: Player,
  state: TrainerState | undefined,
): Promise<Pick<PlayedMode, 'tags' | 'step' | 'weights_sha256'>> {
  const free = tags.find(({ seedable }) => !seedable);
  if (free)
    throw new Error(
      `--sign: ${free.tag.environmentId} takes no seed, so that nobody could play its episodes again`,
    );
  const hash = weights === undefined ? undefined : await weightsHash(weights);
  return {
    tags,
    ...(state ? { step: state.step } : {}),
    ...(hash === undefined ? {} : { weights_sha256: hash }),
  };
}

/** A config has no checkpoint; `checkpoint` means the model that training would begin with, if the config names one. */
function modelNamedBy(name: string, { policy }: RunSettings): string {
  return name === CHECKPOINT && policy.init !== 'scratch' && policy.runtime !== 'tinker' ? policy.init : name;
}

function readTarget(
  target: string,
  overrides: readonly string[],
  purpose: SettingsPurpose,
): { settings: RunSettings; checkpoint?: string; run?: RunFolder } {
  if (isLibraryConfig(target)) return { settings: loadRunSettings(target, overrides, purpose) };
  if (!existsSync(target)) {
    throw new Error(`${target} does not exist; evaluate takes a run folder or a config file`);
  }
  if (!statSync(target).isDirectory()) return { settings: loadRunSettings(target, overrides, purpose) };
  const { run, settings } = openRunFolder(target);
  return {
    settings: overriddenSettings(settings, overrides, run.config, purpose),
    checkpoint: latestCheckpoint(run)?.policy,
    run,
  };
}

/** A player's requests to an endpoint with their cost, in the currency of `endpoint.price_per_million`. */
function usageRow(policy: string, { endpoint }: RunSettings, used: EndpointUsage) {
  const { model, price_per_million: price } = endpoint!;
  return {
    policy,
    model,
    requests: used.requests,
    retries: used.retries,
    prompt_tokens: used.promptTokens,
    completion_tokens: used.completionTokens,
    cost: (used.promptTokens * price.prompt + used.completionTokens * price.completion) / 1e6,
  };
}

type UsageRow = ReturnType<typeof usageRow>;

function usageText({ model, requests, retries, prompt_tokens, completion_tokens, cost }: UsageRow): string {
  return (
    `${model}: ${requests} requests (${retries} again), ${prompt_tokens} prompt and ${completion_tokens} completion tokens` +
    (cost > 0 ? `, cost ${cost.toFixed(4)}` : '')
  );
}

function fileName(text: string): string {
  return text.replace(/[^A-Za-z0-9._]+/g, '_').replace(/^_+|(?<!_)_+$/g, '');
}
