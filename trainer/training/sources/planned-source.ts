import { needsWholeEpisodes } from '../../algorithms/advantages/registry.ts';
import { groupsPerTag, recordsTrajectories, samplingDistribution } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import { mixSeed, PURPOSE } from '../../rollout/seeds.ts';
import { planGroups } from '../../rollout/tag.ts';
import type { EpisodeSource, PlayedGroups, Rollouts, SourcePosition } from './episode-source.ts';

/** Collects when asked to and waits for the last episode: synchronous, on-policy training. */
export class PlannedSource implements EpisodeSource {
  readonly #settings: RunSettings;
  readonly #rollouts: Rollouts;
  readonly #signal: AbortSignal;
  #position: SourcePosition;
  /** Groups of the iteration so far: numbers of further ones go on from there. */
  #groups = 0;

  constructor(settings: RunSettings, rollouts: Rollouts, start: SourcePosition, signal: AbortSignal) {
    this.#settings = settings;
    this.#rollouts = rollouts;
    this.#position = start;
    this.#signal = signal;
  }

  get position(): SourcePosition {
    return this.#position;
  }

  collect(step: number): Promise<PlayedGroups> {
    this.#groups = 0;
    return this.#play(step, groupsPerTag(this.#settings, step));
  }

  refill(step: number, groups: number): Promise<PlayedGroups> {
    return this.#play(step, groupsPerTag(this.#settings, step, groups));
  }

  trained(): void {}

  async close(): Promise<void> {}

  async #play(step: number, tags: ReturnType<typeof groupsPerTag>): Promise<PlayedGroups> {
    const { rollout, seed } = this.#settings;
    const groups = planGroups({
      whole: needsWholeEpisodes(this.#settings.algorithm.advantage),
      tags,
      groupSize: rollout.group_size,
      firstSeed: this.#position.nextSeed,
      firstGroup: this.#groups,
      recorded: recordsTrajectories(this.#settings, step) ? rollout.env_groups : 0,
    });
    const played = await this.#rollouts.play(groups, {
      sampling: samplingDistribution(rollout),
      seed: mixSeed(seed, PURPOSE.rollout, step),
      signal: this.#signal,
    });
    this.#groups += groups.length;
    this.#position = { nextSeed: this.#position.nextSeed + groups.length };
    return played;
  }
}
