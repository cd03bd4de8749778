import { needsWholeEpisodes } from '../../algorithms/advantages/registry.ts';
import { mean } from '../../algorithms/statistics.ts';
import { groupsPerTag, levelSeeds, recordsTrajectories, samplingDistribution } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Metrics } from '../../data/episode-metrics.ts';
import type { Collector } from '../../rollout/collection/collector.ts';
import { RolloutStream, type StreamedGroup } from '../../rollout/collection/rollout-stream.ts';
import { type Episode, samplesOf } from '../../rollout/episode.ts';
import type { Player } from '../../rollout/episode-agent.ts';
import type { RewardHook } from '../../rollout/rewards/reward-hook.ts';
import { mixSeed, PURPOSE } from '../../rollout/seeds.ts';
import { type GroupPlan, planGroups } from '../../rollout/tag.ts';
import { budgetMetrics } from '../../rollout/tally.ts';
import type { EpisodeSource, PlayedGroups, SourcePosition } from './episode-source.ts';

export interface StreamedParts {
  readonly settings: RunSettings;
  readonly collector: Pick<Collector, 'play'>;
  readonly agent: Player;
  readonly reward?: RewardHook;
  readonly stop: AbortSignal;
  /** Called with a line for each group that was given up. */
  readonly note: (text: string) => void;
  /** Current version of the policy. */
  readonly policyVersion: () => number;
}

/**
 * The n-th group of a run, from 0: the same as in synchronous training. Iterations of `env_groups` follow one another,
 * each with its own seeds and samples.
 */
function numberedGroups(settings: RunSettings): (n: number) => GroupPlan {
  const { env_groups, group_size } = settings.rollout;
  const start = levelSeeds(settings).training;
  let known: { readonly iteration: number; readonly groups: readonly GroupPlan[] } | undefined;
  return n => {
    const iteration = Math.floor(n / env_groups);
    if (known?.iteration !== iteration) {
      const groups = planGroups({
        whole: needsWholeEpisodes(settings.algorithm.advantage),
        tags: groupsPerTag(settings, iteration + 1),
        groupSize: group_size,
        firstSeed: start + iteration * env_groups,
        recorded: recordsTrajectories(settings, iteration + 1) ? env_groups : 0,
      });
      known = { iteration, groups };
    }
    return {
      ...known.groups[n % env_groups],
      samplingSeed: mixSeed(settings.seed, PURPOSE.rollout, iteration + 1),
    };
  };
}

/** Takes its episodes from rollouts that continue while the policy learns: asynchronous training with bounded staleness. */
export class StreamedSource implements EpisodeSource {
  readonly #parts: StreamedParts;
  readonly #stream: RolloutStream;
  /** Policy version at the start of each iteration of this session. */
  readonly #versions: number[] = [];
  #taken = 0;

  constructor(parts: StreamedParts, start: SourcePosition) {
    this.#parts = parts;
    const { rollout } = parts.settings;
    this.#stream = new RolloutStream({
      collector: parts.collector,
      agent: parts.agent,
      reward: parts.reward,
      sampling: samplingDistribution(rollout),
      planAt: numberedGroups(parts.settings),
      batchGroups: rollout.env_groups,
      groupSize: rollout.group_size,
      maxStaleness: rollout.asynchronous?.max_staleness ?? 0,
      concurrency: rollout.concurrency,
      start: {
        next: start.nextSeed - levelSeeds(parts.settings).training,
        pending: start.pendingGroups ?? [],
      },
      onDropped: (plan, error) =>
        parts.note(`group of ${plan.tag} with seed ${plan.seed} given up: ${error.message}`),
      onLost: (plan, error) =>
        parts.note(`episode of ${plan.tag} with seed ${plan.seed} left out: ${error.message}`),
    });
    this.#versions.push(parts.policyVersion());
  }

  get position(): SourcePosition {
    const { next, pending } = this.#stream.position;
    return { nextSeed: levelSeeds(this.#parts.settings).training + next, pendingGroups: pending };
  }

  collect(): Promise<PlayedGroups> {
    this.#taken = 0;
    return this.#take(this.#parts.settings.rollout.env_groups);
  }

  refill(_step: number, groups: number): Promise<PlayedGroups> {
    this.#stream.refuse(groups);
    return this.#take(groups);
  }

  trained(): void {
    this.#versions.push(this.#parts.policyVersion());
    this.#stream.advance();
  }

  close(): Promise<void> {
    return this.#stream.close();
  }

  async #take(groups: number): Promise<PlayedGroups> {
    const begun = performance.now();
    const taken = await this.#stream.take(groups, this.#parts.stop);
    const seconds = (performance.now() - begun) / 1000;
    const episodes = taken.flatMap(({ episodes }, i) =>
      episodes.map(episode => ({ ...episode, groupId: this.#taken + i })),
    );
    this.#taken += groups;
    return { episodes, metrics: { ...this.#metrics(taken, episodes), 'timing_s/rollout': seconds } };
  }

  #metrics(taken: readonly StreamedGroup[], episodes: readonly Episode[]): Metrics {
    const counts = this.#stream.takeCounts();
    const perEpisode = (ms: number) => ms / 1000 / Math.max(1, counts.completedEpisodes);
    const ages = episodes.flatMap(episode => this.#tokenAges(episode));
    return {
      'rollouter/episodes_completed': counts.completedEpisodes,
      'rollouter/steps': counts.actions,
      ...budgetMetrics(counts.tally),
      'rollouter/agent_wait_s': perEpisode(counts.tally.agentMs),
      'rollouter/environment_wait_s': perEpisode(counts.tally.environmentMs),
      'rollouter/replayed_episodes': counts.tally.movedEpisodes,
      'rollouter/dropped_groups': counts.droppedGroups,
      'rollouter/lost_episodes': counts.lostEpisodes,
      'rollouter/cut_observations': counts.tally.cutObservations,
      'rollouter/too_long_groups': counts.tooLongGroups,
      errored_rollouts: counts.erroredEpisodes,
      'rollouter/stale_groups_dropped': counts.staleGroups,
      'rollouter/idle_ratio': counts.idleShare,
      'rollouter/staleness_max': Math.max(0, ...taken.map(({ staleness }) => staleness)),
      'rollouter/staleness_mean': ages.length === 0 ? 0 : mean(ages),
      stale_samples_processed: taken.reduce(
        (sum, group) => sum + (group.staleness > 0 ? group.episodes.length : 0),
        0,
      ),
    };
  }

  /** Iterations that have ended since each token was sampled. */
  #tokenAges(episode: Episode): number[] {
    const age = (version: number) =>
      this.#versions.length - 1 - this.#versions.findLastIndex(v => v <= version);
    return samplesOf(episode).flatMap(({ lossMask, versions }) =>
      Array.from(versions).flatMap((version, t) => (lossMask[t] ? [age(version)] : [])),
    );
  }
}
