import { existsSync } from 'node:fs';
import { atEnd } from '../../../shared/closing.ts';
import { Random } from '../../../shared/random.ts';
import { mean } from '../../algorithms/statistics.ts';
import { countOnes } from '../../algorithms/training-sequence.ts';
import { levelSeeds, splitGroups } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import {
  type Demonstration,
  demonstrate,
  demonstrationsOf,
  demonstratorOf,
} from '../../data/demonstrations.ts';
import type { Metrics } from '../../data/episode-metrics.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import type { Policy } from '../../policy/policy.ts';
import { type ExampleMessage, type Learned, tokenizeConversation } from '../../prompts/conversation.ts';
import { responsePrime } from '../../prompts/prompt.ts';
import { RANDOM } from '../../rollout/agents/agent.ts';
import { type DescribedTag, hasRandomPlayer } from '../../rollout/described-tag.ts';
import type { Episode } from '../../rollout/episode.ts';
import { mixSeed, PURPOSE } from '../../rollout/seeds.ts';
import { planGroups } from '../../rollout/tag.ts';
import { readGivenJsonLines } from '../../tracking/jsonlines.ts';
import { type Progress, shownDuration } from '../../tracking/progress.ts';
import type { Tracker } from '../../tracking/tracker.ts';
import type { RunFolder } from '../run-folder/run-folder.ts';
import type { RunContext } from '../setup/run-context.ts';
import { levelHash } from '../validation.ts';
import { type GivenEpisode, playGivenEpisodes, readGivenEpisodes } from './given-actions.ts';
import {
  readDemonstrations,
  saveDemonstrations,
  saveWarmStart,
  type WarmStartSettings,
  type WarmStartState,
  warmStart,
} from './warm-start.ts';

/** Conversations to learn from, as tokens. */
interface Examples {
  readonly examples: readonly Demonstration[];
  /** Conversations left out because they are longer than the policy's context. */
  readonly tooLong: number;
}

const ROLES: readonly string[] = ['system', 'user', 'assistant'];

/** @throws Error naming a file that does not exist */
export function requireFiles(files: readonly string[]): void {
  const missing = files.find(file => !existsSync(file));
  if (missing !== undefined) {
    throw new Error(`${missing} does not exist; warm_start.files names JSON Lines files`);
  }
}

/**
 * Reads conversations from JSON Lines files, `{"messages": [{"role", "content", "weight"?}, …]}` a line; other keys are
 * ignored. A message of weight 0 is not learned.
 * @param prime see {@link tokenizeConversation}
 * @throws Error naming the file and line of a faulty example
 */
export function readExamples(
  files: readonly string[],
  tokenizer: Tokenizer,
  options: { readonly prime: string; readonly maxLength: number; readonly learned?: Learned },
): Examples {
  requireFiles(files);
  const all = files.flatMap(file =>
    readGivenJsonLines(file).map(({ line, value }) => {
      try {
        return tokenizeConversation(messagesOf(value), tokenizer, options.prime, options.learned);
      } catch (error) {
        throw new Error(`${file}:${line}: ${(error as Error).message}`, { cause: error });
      }
    }),
  );
  const examples = all.filter(({ tokenIds }) => tokenIds.length <= options.maxLength);
  if (examples.length === 0) {
    throw new Error(
      `${files.join(', ')}: none of ${all.length} conversations fits a context of ${options.maxLength} tokens` +
        `${all.length > 0 ? `; the shortest has ${Math.min(...all.map(({ tokenIds }) => tokenIds.length))}: raise policy.context` : ''}`,
    );
  }
  return { examples, tooLong: all.length - examples.length };
}

/** Holds a share of the examples back, drawn at random; at least one, and not all, where the share is above 0. */
export function splitExamples<T>(
  examples: readonly T[],
  share: number,
  seed: number,
): { readonly train: readonly T[]; readonly validation: readonly T[] } {
  if (share === 0 || examples.length < 2) return { train: examples, validation: [] };
  const held = Math.min(examples.length - 1, Math.max(1, Math.round(share * examples.length)));
  const shuffled = Random.fromSeed(seed).shuffle([...examples]);
  return { train: shuffled.slice(held), validation: shuffled.slice(0, held) };
}

function messagesOf(value: unknown): readonly ExampleMessage[] {
  const { messages } = (value ?? {}) as { readonly messages?: unknown };
  if (!Array.isArray(messages)) {
    throw new Error(
      'an example is an object with a list of `messages`, or with a `seed` and a list of `actions`',
    );
  }
  messages.forEach((message, i) => {
    const { role, content, weight } = (message ?? {}) as Record<string, unknown>;
    if (!ROLES.includes(String(role))) {
      throw new Error(`message ${i} has role ${JSON.stringify(role)}; valid: ${ROLES.join(', ')}`);
    }
    if (typeof content !== 'string') throw new Error(`message ${i} has no text as its content`);
    if (weight !== undefined && weight !== 0 && weight !== 1) {
      throw new Error(`message ${i} has weight ${JSON.stringify(weight)}; it is 0 or 1`);
    }
  });
  return messages as ExampleMessage[];
}

export interface SupervisionParts {
  readonly run: Pick<RunFolder, 'warmStart'>;
  readonly settings: RunSettings;
  readonly context: RunContext;
  readonly policy: Pick<Policy, 'update' | 'score' | 'save'>;
  readonly tracker: Tracker;
  readonly progress: Progress;
  readonly stop: AbortSignal;
  /** Position of a stopped warm start; the policy is the one that it kept. */
  readonly resumed?: WarmStartState;
  /** Seconds of the run so far. */
  readonly elapsed: () => number;
}

/**
 * The supervised part of a run: demonstrations of a reference policy, or from files as conversations or actions; learned, and
 * measured on held-out ones. Keeps its position when it stops, and after each epoch but the last.
 * @param validationLevels hashes of levels without demonstrations
 * @throws Error where the files of a stopped one have changed
 */
export async function runSupervision(
  parts: SupervisionParts,
  validationLevels: ReadonlySet<string>,
): Promise<void> {
  const { settings, progress, run, resumed } = parts;
  const warm = settings.warm_start!;
  progress.begin('warm start', warm.epochs, 0);
  using _stage = atEnd(() => progress.end());
  const given = warm.files.length > 0 ? readGivenEpisodes(warm.files) : undefined;
  if (warm.files.length > 0 && !given) await learn(parts, warm, fromFiles(parts, warm));
  else if (resumed) await learn(parts, warm, { demonstrations: readDemonstrations(run), metrics: {} });
  else {
    const supervision = await played(parts, warm, given, validationLevels);
    saveDemonstrations(run, supervision.demonstrations);
    await learn(parts, warm, supervision);
  }
}

async function learn(
  { run, settings, policy, tracker, progress, stop, resumed, elapsed }: SupervisionParts,
  warm: WarmStartSettings,
  { demonstrations, metrics }: Supervision,
): Promise<void> {
  const { train, validation } = splitExamples(
    demonstrations,
    warm.validation_share,
    mixSeed(settings.seed, PURPOSE.heldBack),
  );
  const measured = () => validationLoss(policy, validation);
  const rows: Metrics[] = [];
  const write = (row: Metrics) => {
    rows.push(row);
    tracker.write(0, row);
  };
  const amount = {
    demonstrations: demonstrations.length,
    learnedTokens: demonstrations.reduce((total, { lossMask }) => total + countOnes(lossMask), 0),
  };
  if (resumed) assertSame(resumed, amount);
  const begun = { at: performance.now(), updates: resumed?.updates ?? 0 };
  let left = '';
  let losses: { readonly [label: string]: string } = {};
  for (const row of resumed?.rows ?? [{ ...metrics, ...(await measured()) }]) write(row);
  await warmStart(policy, train, warm, {
    seed: settings.seed,
    signal: stop,
    start: resumed,
    async keep(position) {
      const state = { ...position, ...amount, rows, seconds: elapsed() };
      await saveWarmStart(run, state, policy).catch(error => {
        progress.warn(`the warm start cannot be kept in ${run.warmStart}: ${error.message}`);
        throw error;
      });
    },
    onUpdate(done, total) {
      const seconds = (performance.now() - begun.at) / 1000;
      left = shownDuration((seconds / (done - begun.updates)) * (total - done));
      progress.update(Math.floor((done / total) * warm.epochs), { left, ...losses });
    },
    async onEpoch(epoch, learned) {
      const held = await measured();
      write({
        'sft/epoch': epoch,
        'sft/loss': learned['sft/loss'],
        'sft/grad_norm': learned['actor/grad_norm'],
        ...held,
      });
      const shown = Object.values(held).map(value => ['validation', value.toFixed(3)]);
      losses = { loss: learned['sft/loss'].toFixed(3), ...Object.fromEntries(shown) };
      progress.update(epoch, { left, ...losses });
    },
  });
}

type DemonstrationAmount = Pick<WarmStartState, 'demonstrations' | 'learnedTokens'>;

function assertSame(before: DemonstrationAmount, now: DemonstrationAmount): void {
  if (before.demonstrations === now.demonstrations && before.learnedTokens === now.learnedTokens) return;
  const shown = ({ demonstrations, learnedTokens }: DemonstrationAmount) =>
    `${demonstrations} conversations with ${learnedTokens} tokens to learn`;
  throw new Error(
    `warm_start.files has ${shown(now)}, and had ${shown(before)} when the warm start was stopped: put the files back as they were, or start a new run`,
  );
}

interface Supervision {
  readonly demonstrations: readonly Demonstration[];
  readonly metrics: Metrics;
}

function fromFiles(
  { settings, context, progress }: SupervisionParts,
  { files, learn: learned }: WarmStartSettings,
): Supervision {
  const { examples, tooLong } = readExamples(files, context.tokenizer, {
    prime: responsePrime(settings.rollout.think),
    learned,
    maxLength: settings.policy.context,
  });
  if (tooLong > 0) {
    progress.warn(
      `${tooLong} conversations are longer than policy.context ${settings.policy.context} and left out`,
    );
  }
  return { demonstrations: examples, metrics: { 'sft/episodes': examples.length, 'sft/too_long': tooLong } };
}

async function played(
  { settings, context, progress, stop }: SupervisionParts,
  warm: WarmStartSettings,
  given: readonly GivenEpisode[] | undefined,
  validationLevels: ReadonlySet<string>,
): Promise<Supervision> {
  const { episodes, warnings } = given
    ? await playGivenEpisodes(context, given, settings, stop)
    : { episodes: await byReference(settings, context, warm, stop), warnings: [] };
  for (const warning of warnings) progress.warn(warning);
  const kept = episodes.filter(episode => !validationLevels.has(levelHash(episode)));
  const success = episodes.filter(episode => episode.success).length / episodes.length;
  const samples = kept.flatMap(episode => demonstrationsOf(episode, warm.learn));
  const limit = settings.policy.context;
  const demonstrations = samples.filter(({ tokenIds }) => tokenIds.length <= limit);
  const tooLong = samples.length - demonstrations.length;
  if (samples.length === 0) {
    throw new Error(
      `none of the ${given?.length ?? warm.episodes} demonstrations of warm_start came to an end: the environment failed in each, or a validation plays all their levels`,
    );
  }
  if (demonstrations.length === 0 && tooLong > 0) {
    const shortest = Math.min(...samples.map(({ tokenIds }) => tokenIds.length));
    throw new Error(`no demonstration fits policy.context ${limit}: the shortest has ${shortest} tokens`);
  }
  if (demonstrations.every(({ lossMask }) => countOnes(lossMask) === 0)) {
    throw new Error(
      'no answer of the demonstrations of warm_start can be learned: each turn was random or, under rollout.constrained, no valid action of its state',
    );
  }
  const turns = kept.flatMap(episode => episode.turns);
  const unlisted = turns.filter(({ exploratory }) => exploratory === 'not_allowed').length;
  if (unlisted > 0) {
    progress.warn(
      `${unlisted} of ${turns.length} turns of the demonstrations took an action that their state does not list as valid, and are not learned`,
    );
  }
  if (tooLong > 0) {
    progress.warn(`${tooLong} demonstrations are longer than policy.context ${limit} and left out`);
  }
  return {
    demonstrations,
    metrics: { 'sft/episodes': kept.length, 'sft/success': success, 'sft/too_long': tooLong },
  };
}

/** Episodes of the player that `warm_start.policy` names. */
function byReference(
  settings: RunSettings,
  { collector, tags }: RunContext,
  warm: WarmStartSettings,
  stop: AbortSignal,
): Promise<readonly Episode[]> {
  const plans = planGroups({
    tags: splitGroups(settings.train_tags, warm.episodes),
    groupSize: 1,
    firstSeed: levelSeeds(settings).demonstrations,
  });
  checkRandomPlayers(tags, settings.train_tags, warm);
  return demonstrate(
    collector,
    plans,
    demonstratorOf(warm),
    mixSeed(settings.seed, PURPOSE.demonstrations),
    stop,
  );
}

/** Mean negative log-likelihood of the learned tokens of held-out examples; nothing without any. */
async function validationLoss(
  policy: Pick<Policy, 'score'>,
  examples: readonly Demonstration[],
): Promise<Metrics> {
  const scored = examples.filter(({ lossMask }) => countOnes(lossMask) > 0);
  if (scored.length === 0) return {};
  const scores = await policy.score(scored);
  const losses = scores.flatMap(({ logProbs }, i) =>
    Array.from(logProbs).flatMap((logProb, t) => (scored[i].lossMask[t] ? [-logProb] : [])),
  );
  return { 'sft/validation_loss': mean(losses) };
}

/** @throws Error naming an environment without random actions, if the warm start plays at random */
function checkRandomPlayers(
  tags: readonly DescribedTag[],
  played: readonly string[],
  { policy, policies, random_turns: randomTurns }: WarmStartSettings,
): void {
  for (const described of tags) {
    const { name, environmentId } = described.tag;
    const player = policies[name] ?? policy;
    if (!played.includes(name) || (player !== RANDOM && randomTurns === 0) || hasRandomPlayer(described)) {
      continue;
    }
    throw new Error(
      `warm_start.policy: ${environmentId} names no actions to play at random; add \`actions\` to its definition, ` +
        'name conversations in warm_start.files, or set warm_start: null',
    );
  }
}
