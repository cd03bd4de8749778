import { needsWholeEpisodes } from '../../algorithms/advantages/registry.ts';
import { mean } from '../../algorithms/statistics.ts';
import {
  groupsPerTag,
  prefixPoolSettings,
  recordsTrajectories,
  samplingDistribution,
  treePlan,
  vinePlan,
} from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Metrics } from '../../data/episode-metrics.ts';
import type { SamplingDistribution } from '../../generation/generation.ts';
import {
  type KeptPrefix,
  learnPrefixes,
  NO_PREFIXES,
  type PrefixState,
  takePrefixes,
} from '../../rollout/branching/prefix.ts';
import type { Episode } from '../../rollout/episode.ts';
import {
  adaptiveShares,
  apportion,
  chooseReplays,
  followSuccess,
  learnability,
  type ReplayedLevel,
  rememberLevels,
  type TagSuccess,
} from '../../rollout/levels.ts';
import { mixSeed, PURPOSE } from '../../rollout/seeds.ts';
import { type GroupPlan, planGroups } from '../../rollout/tag.ts';

export interface PlayOptions {
  readonly sampling: SamplingDistribution;
  /** Seeds the draws; the levels follow the groups' own seeds. */
  readonly seed: number;
  readonly signal: AbortSignal;
  /** Environments with a service that is away may be missing, after `rollout.failover_s`. */
  readonly isPartial?: boolean;
}

/** Episodes of whole groups, in the order of the groups, and metrics of the collection. */
export interface PlayedGroups {
  readonly episodes: readonly Episode[];
  readonly metrics: Metrics;
}

/** Plays groups of episodes with the current policy: the training loop's only access to environments. */
export interface Rollouts {
  /** @throws the signal's reason when it is aborted; then nothing of the collection counts */
  play(groups: readonly GroupPlan[], options: PlayOptions): Promise<PlayedGroups>;
}

/** Position of a source, for checkpoints: a source opened there yields the same remaining episodes. */
export interface SourcePosition {
  /** Seed of the next group to open. */
  readonly nextSeed: number;
  /** Groups that were opened before it and are not trained on yet, as their distance from the run's first. */
  readonly pendingGroups?: readonly number[];
  /** Moving averages of success by tag, where the curriculum follows them. */
  readonly tagSuccess?: TagSuccess;
  /** Levels that may be played again, where there is level replay. */
  readonly replayLevels?: readonly ReplayedLevel[];
  /** Episodes that later ones may continue, and the controllers of their share. */
  readonly prefixes?: PrefixState;
}

/** Supplies training with episodes, iteration by iteration. */
export interface EpisodeSource {
  readonly position: SourcePosition;
  /**
   * The episodes of an iteration, counted from 1: whole groups, each with its own number.
   * @throws the signal's reason of the run when it is asked to stop
   */
  collect(step: number): Promise<PlayedGroups>;
  /** More groups for the same iteration, in place of unusable ones. */
  refill(step: number, groups: number): Promise<PlayedGroups>;
  /** Reports that the iteration's batch has been trained on. */
  trained(): void;
  /** Ends all open episodes. */
  close(): Promise<void>;
}

type TagGroups = ReturnType<typeof groupsPerTag>;

/** Collects on request and waits for the last episode: synchronous, on-policy training. */
export class PlannedSource implements EpisodeSource {
  readonly #settings: RunSettings;
  readonly #rollouts: Rollouts;
  readonly #signal: AbortSignal;
  #position: SourcePosition;
  /** Groups of the iteration so far: the numbers of later ones continue from there. */
  #groups = 0;
  /** Stored episodes that were too old to continue in the iteration. */
  #oldPrefixes = 0;

  constructor(
    settings: RunSettings,
    rollouts: Rollouts,
    { nextSeed, tagSuccess, replayLevels, prefixes }: SourcePosition,
    signal: AbortSignal,
  ) {
    this.#settings = settings;
    this.#rollouts = rollouts;
    const { adaptive_curriculum, level_replay, prefix } = settings.rollout;
    this.#position = {
      nextSeed,
      ...(adaptive_curriculum ? { tagSuccess: tagSuccess ?? {} } : {}),
      ...(level_replay ? { replayLevels: replayLevels ?? [] } : {}),
      ...(prefix ? { prefixes: prefixes ?? NO_PREFIXES } : {}),
    };
    this.#signal = signal;
  }

  get position(): SourcePosition {
    return this.#position;
  }

  collect(step: number): Promise<PlayedGroups> {
    this.#groups = 0;
    const { env_groups } = this.#settings.rollout;
    const prefixes = this.#takePrefixes(step, env_groups);
    return this.#play(step, this.#shares(step, env_groups - prefixes.length), prefixes);
  }

  refill(step: number, groups: number): Promise<PlayedGroups> {
    return this.#play(step, this.#shares(step, groups));
  }

  trained(): void {}

  async close(): Promise<void> {}

  #shares(step: number, groups: number): TagGroups {
    const { adaptive_curriculum } = this.#settings.rollout;
    if (adaptive_curriculum === null) return groupsPerTag(this.#settings, step, groups);
    const tags = this.#settings.train_tags;
    const shares = adaptiveShares(adaptive_curriculum, tags, this.#position.tagSuccess ?? {});
    return apportion(shares, groups).map((count, i) => ({ tag: tags[i], groups: count }));
  }

  #takePrefixes(step: number, groups: number): readonly KeptPrefix[] {
    const settings = prefixPoolSettings(this.#settings);
    if (!settings) return [];
    const { taken, left, old } = takePrefixes(this.#position.prefixes ?? NO_PREFIXES, settings, {
      step,
      groups,
    });
    this.#position = { ...this.#position, prefixes: left };
    this.#oldPrefixes = old;
    return taken;
  }

  /** Further groups that continue earlier episodes. */
  #continuations(prefixes: readonly KeptPrefix[], planned: readonly GroupPlan[]): GroupPlan[] {
    const size = this.#settings.rollout.group_size;
    const whole = needsWholeEpisodes(this.#settings.algorithm.advantage);
    return prefixes.map((prefix, i) => ({
      groupId: this.#groups + planned.length + i,
      tag: prefix.tag,
      seed: prefix.seed,
      size,
      prefix,
      ...(planned[0]?.record ? { record: true } : {}),
      ...(whole ? { whole } : {}),
      ...(planned[0]?.stateKeys ? { stateKeys: true } : {}),
    }));
  }

  async #play(step: number, tags: TagGroups, prefixes: readonly KeptPrefix[] = []): Promise<PlayedGroups> {
    const { rollout, seed } = this.#settings;
    const planned = planGroups({
      whole: needsWholeEpisodes(this.#settings.algorithm.advantage),
      tags,
      groupSize: rollout.group_size,
      tree: treePlan(this.#settings),
      vine: vinePlan(this.#settings),
      stateKeys: rollout.state_key === 'state',
      firstSeed: this.#position.nextSeed,
      firstGroup: this.#groups,
      recorded: recordsTrajectories(this.#settings, step) ? rollout.env_groups : 0,
    });
    const { groups: begun, fresh } = this.#withReplays(step, planned);
    const groups = [...begun, ...this.#continuations(prefixes, begun)];
    const played = await this.#rollouts.play(groups, {
      sampling: samplingDistribution(rollout),
      seed: mixSeed(seed, PURPOSE.rollout, step),
      signal: this.#signal,
      isPartial: true,
    });
    this.#groups += groups.length;
    const metrics = {
      ...this.#learnFrom(step, withoutPrefixed(played.episodes), begun.length - fresh),
      ...this.#learnPrefixes(step, played.episodes, prefixes.length),
    };
    this.#position = { ...this.#position, nextSeed: this.#position.nextSeed + fresh };
    return { ...played, metrics: { ...played.metrics, ...metrics } };
  }

  /** Some groups of each tag with levels that were played before; new levels have the next seeds without a gap. */
  #withReplays(
    step: number,
    planned: readonly GroupPlan[],
  ): { readonly groups: readonly GroupPlan[]; readonly fresh: number } {
    const replay = this.#settings.rollout.level_replay;
    if (replay === null) return { groups: planned, fresh: planned.length };
    const levels = this.#position.replayLevels ?? [];
    const seeds = new Map(
      [...Map.groupBy(planned, ({ tag }) => tag)].map(([tag, own], i) => {
        const count = Math.floor(replay.share * own.length);
        const seed = mixSeed(this.#settings.seed, PURPOSE.replay, step, i, this.#groups);
        return [tag, chooseReplays(levels, tag, count, replay, { step, seed })];
      }),
    );
    let { nextSeed } = this.#position;
    const groups = planned.map(plan => ({ ...plan, seed: seeds.get(plan.tag)!.shift() ?? nextSeed++ }));
    return { groups, fresh: nextSeed - this.#position.nextSeed };
  }

  #learnPrefixes(step: number, episodes: readonly Episode[], planned: number): Metrics {
    const settings = prefixPoolSettings(this.#settings);
    if (!settings) return {};
    const groups = [...Map.groupBy(episodes, ({ groupId }) => groupId).values()];
    const { seed } = this.#settings;
    const { state, metrics } = learnPrefixes(this.#position.prefixes ?? NO_PREFIXES, groups, settings, {
      step,
      seed,
    });
    this.#position = { ...this.#position, prefixes: state };
    return {
      ...metrics,
      'prefix/dropped_old': this.#oldPrefixes,
      'prefix/dropped_diverged': planned - metrics['prefix/groups'],
    };
  }

  #learnFrom(step: number, episodes: readonly Episode[], replayed: number): Metrics {
    const { adaptive_curriculum: curriculum, level_replay: replay } = this.#settings.rollout;
    const metrics: Metrics = {};
    if (curriculum) {
      const played = Object.fromEntries(
        [...Map.groupBy(episodes, ({ tag }) => tag)].map(([tag, own]) => [tag, successOf(own)]),
      );
      const tagSuccess = followSuccess(curriculum, this.#position.tagSuccess ?? {}, played);
      this.#position = { ...this.#position, tagSuccess };
      for (const [tag, success] of Object.entries(tagSuccess)) metrics[`curriculum/${tag}/success`] = success;
    }
    if (replay) {
      const results = [...Map.groupBy(episodes, ({ groupId }) => groupId).values()].map(group => ({
        tag: group[0].tag,
        seed: group[0].seed,
        attempts: group.length,
        successes: group.filter(({ success }) => success).length,
      }));
      const replayLevels = rememberLevels(this.#position.replayLevels ?? [], results, replay, step);
      this.#position = { ...this.#position, replayLevels };
      metrics['curriculum/replayed_groups'] = replayed;
      metrics['curriculum/replay_levels'] = replayLevels.length;
      metrics['curriculum/replay_learnability'] =
        replayLevels.length === 0 ? 0 : mean(replayLevels.map(learnability));
    }
    return metrics;
  }
}

/** The episodes from the start, which curricula use. */
function withoutPrefixed(episodes: readonly Episode[]): readonly Episode[] {
  return episodes.filter(({ prefix }) => !prefix);
}

function successOf(episodes: readonly Episode[]): number {
  return episodes.filter(({ success }) => success).length / episodes.length;
}
