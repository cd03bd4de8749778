import { validateConfig } from '../../shared/config.ts';
import { readLogLevel } from '../../shared/log.ts';
import { levelSeeds, splitGroups } from '../config/derived.ts';
import { loadRunSettings } from '../config/load.ts';
import { WarmStart } from '../config/sections/training.ts';
import { demonstrate } from '../data/demonstrations.ts';
import { episodeConversations } from '../data/transcript.ts';
import { episodeReturn } from '../rollout/episode.ts';
import { mixSeed, PURPOSE } from '../rollout/seeds.ts';
import { planGroups } from '../rollout/tag.ts';
import { writeJsonLines } from '../tracking/jsonlines.ts';
import { openProgress, shownShare } from '../tracking/progress.ts';
import { openTextRunContext } from '../training/setup/run-context.ts';
import { stopSignal } from './stop-signal.ts';

export interface DemonstrationsOptions {
  /** File to write. */
  readonly out: string;
  /** Leaves out episodes without success. */
  readonly onlySuccess?: boolean;
  readonly quiet?: boolean;
}

/**
 * The command `demonstrations`: lets the reference policy of a config's `warm_start` play, `optimal` where it has none, and
 * writes the conversations as JSON Lines for `warm_start.files`.
 * @returns the exit status
 */
export async function demonstrations(
  config: string,
  overrides: readonly string[],
  options: DemonstrationsOptions,
): Promise<number> {
  const progress = openProgress(process.stderr, options.quiet ? 'silent' : readLogLevel());
  const settings = loadRunSettings(config, overrides, 'play');
  const player = settings.warm_start ?? validateConfig({ policy: 'optimal' }, WarmStart);
  const stop = stopSignal(() => progress.note('stopping'));
  const context = await openTextRunContext(settings, progress.warn, stop);
  try {
    const plans = planGroups({
      tags: splitGroups(settings.train_tags, player.episodes),
      groupSize: 1,
      firstSeed: levelSeeds({ ...settings, warm_start: player }).demonstrations,
    });
    const { episodes } = await demonstrate(
      context.collector,
      plans,
      { policy: player.policy, randomTurns: player.random_turns },
      mixSeed(settings.seed, PURPOSE.demonstrations),
      stop,
    );
    const { context_mode: mode, max_context_window: window } = settings.rollout;
    const kept = options.onlySuccess ? episodes.filter(({ success }) => success) : episodes;
    const lines = kept.flatMap(episode =>
      episodeConversations(episode, context.collector.prompt(episode.tag), { mode, window }).map(
        messages => ({
          messages,
          tag: episode.tag,
          env_id: episode.environmentId,
          seed: episode.seed,
          success: episode.success,
          return: episodeReturn(episode),
        }),
      ),
    );
    writeJsonLines(options.out, lines);
    const success = episodes.filter(episode => episode.success).length / episodes.length;
    console.log(
      `${options.out}: ${lines.length} conversations of ${kept.length} episodes by ${player.policy}, success of all ${shownShare(success)}`,
    );
    return 0;
  } finally {
    await context.close();
  }
}
