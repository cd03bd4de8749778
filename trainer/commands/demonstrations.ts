import { closing } from '../../shared/closing.ts';
import { validateConfig } from '../../shared/config.ts';
import { readLogLevel } from '../../shared/log.ts';
import { checkReplaceable } from '../../shared/replace-file.ts';
import { levelSeeds, samplingDistribution, splitGroups } from '../config/derived.ts';
import { loadRunSettings } from '../config/load.ts';
import { WarmStart } from '../config/sections/training.ts';
import type { RunSettings } from '../config/settings.ts';
import { demonstrate, demonstratorOf } from '../data/demonstrations.ts';
import type { ExampleMessage } from '../prompts/conversation.ts';
import type { PastTurn, Prompt } from '../prompts/prompt.ts';
import type { ContextSettings } from '../rollout/context.ts';
import { type Episode, episodeReturn, type Turn } from '../rollout/episode.ts';
import { nextView } from '../rollout/play.ts';
import { mixSeed, PURPOSE } from '../rollout/seeds.ts';
import { type GroupPlan, planGroups } from '../rollout/tag.ts';
import { writeJsonLines } from '../tracking/jsonlines.ts';
import { openProgress, type Progress, shownShare } from '../tracking/progress.ts';
import { findServerSoon } from '../training/setup/find-server.ts';
import { agentRollouts, openTextRunContext, type TextRunContext } from '../training/setup/run-context.ts';
import { hasWeights, openPlayer } from './evaluate/players.ts';
import type { OptionsOf } from './options.ts';
import { stopRequests } from './processes/child-program.ts';

interface SaidTurn extends PastTurn {
  readonly exploratory: Turn['exploratory'];
}

/**
 * An episode as conversations to learn from: one conversation in full context; otherwise one for each turn with the
 * content of its prompt, of which only that turn's response is learned. Random turns have weight 0.
 */
export function episodeConversations(
  episode: Pick<Episode, 'turns'>,
  prompt: Pick<Prompt, 'wording'>,
  { mode, window }: Pick<ContextSettings, 'mode' | 'window'>,
): ExampleMessage[][] {
  const { wording } = prompt;
  const turns = episode.turns.map(
    (turn, i): SaidTurn => ({
      view: nextView(turn.state, turn.actionsLeft, episode.turns.slice(0, i)),
      response: turn.rawResponse,
      exploratory: turn.exploratory,
    }),
  );
  const system: ExampleMessage[] =
    wording.system() === '' ? [] : [{ role: 'system', content: wording.system() }];
  const user = (content: string): ExampleMessage => ({ role: 'user', content });
  const said = ({ response, exploratory }: SaidTurn, weight = exploratory ? 0 : 1): ExampleMessage => ({
    role: 'assistant',
    content: response,
    ...(weight === 0 ? { weight } : {}),
  });
  const exchange = (turn: SaidTurn, weight?: 0) => [user(wording.turn(turn.view)), said(turn, weight)];
  if (mode === 'full' && window === 0) return [[...system, ...turns.flatMap(turn => exchange(turn))]];
  return turns.map((turn, i) => {
    const past = turns.slice(window === 0 ? 0 : Math.max(0, i + 1 - window), i);
    if (mode === 'single_turn') {
      return [...system, user(wording.folded(turn.view, past)), said(turn)];
    }
    return [...system, ...past.flatMap(earlier => exchange(earlier, 0)), ...exchange(turn)];
  });
}

/**
 * The command `demonstrations`: plays with the reference policy of a config's `warm_start` (`optimal` by default), or
 * with a policy in a folder sampled as `rollout` says, and writes the conversations as JSON Lines for
 * `warm_start.files`.
 * @returns the exit status
 */
export async function demonstrations(
  config: string,
  overrides: readonly string[],
  options: OptionsOf<'demonstrations'>,
): Promise<number> {
  const progress = openProgress(process.stderr, options.quiet ? 'silent' : readLogLevel());
  const { attempts = 1 } = options;
  if (attempts > 1 && options.policy === undefined) {
    throw new RangeError('--attempts is for --policy: a reference policy would play the same again');
  }
  const settings = loadRunSettings(config, overrides, options.policy === undefined ? 'play' : 'train');
  const player = settings.warm_start ?? validateConfig({ policy: 'optimal' }, WarmStart);
  using requests = stopRequests(() => progress.note('stopping'));
  const { signal: stop } = requests;
  const plans = planGroups({
    tags: splitGroups(settings.train_tags, player.episodes),
    groupSize: attempts,
    firstSeed: levelSeeds({ ...settings, warm_start: player }).demonstrations,
  });
  const seed = mixSeed(settings.seed, PURPOSE.demonstrations);
  checkReplaceable(options.out);
  await using table = closing(await openTable(settings, player, options.policy, progress, stop));
  const { context } = table;
  const episodes = await table.play(plans, seed);
  const { context_mode: mode, max_context_window: window } = settings.rollout;
  const kept = options.onlySuccess ? episodes.filter(({ success }) => success) : episodes;
  const lines = kept.flatMap(episode =>
    episodeConversations(episode, context.collector.prompt(episode.tag), { mode, window }).map(messages => ({
      messages,
      tag: episode.tag,
      env_id: episode.environmentId,
      seed: episode.seed,
      success: episode.success,
      return: episodeReturn(episode),
    })),
  );
  writeJsonLines(options.out, lines);
  const success = episodes.filter(episode => episode.success).length / episodes.length;
  console.log(
    `${options.out}: ${lines.length} conversations of ${kept.length} episodes by ${options.policy ?? player.policy}, success of all ${shownShare(success)}`,
  );
  return 0;
}

/** The environments with their demonstrators. */
interface Table {
  readonly context: TextRunContext;
  play(plans: readonly GroupPlan[], seed: number): Promise<readonly Episode[]>;
  close(): Promise<void>;
}

async function openTable(
  settings: RunSettings,
  player: WarmStart,
  policy: string | undefined,
  progress: Progress,
  stop: AbortSignal,
): Promise<Table> {
  if (policy === undefined) {
    await findServerSoon(settings, progress.warn, stop);
    const context = await openTextRunContext(settings, progress.warn, stop);
    const reference = demonstratorOf(player);
    return {
      context,
      play: (plans, seed) => demonstrate(context.collector, plans, reference, seed, stop),
      close: () => context.close(),
    };
  }
  if (!(await hasWeights(policy))) throw new Error(`--policy ${policy}: no folder with a policy`);
  const opened = await openPlayer(policy, { settings, checkpoint: undefined, note: progress.warn, stop });
  const rollouts = agentRollouts(opened.context, opened.modes[0].agent, progress.warn);
  const sampling = samplingDistribution(settings.rollout);
  return {
    context: opened.context,
    play: async (plans, seed) => (await rollouts.play(plans, { sampling, seed, signal: stop })).episodes,
    close: () => opened.close(),
  };
}
