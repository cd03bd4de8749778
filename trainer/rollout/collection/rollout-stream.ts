import { orAborted } from '../../../shared/http/retry.ts';
import { EpisodeTooLong } from '../context.ts';
import type { Episode } from '../episode.ts';
import type { Player } from '../episode-agent.ts';
import type { RewardHook } from '../rewards/reward-hook.ts';
import type { GroupPlan } from '../tag.ts';
import { IntervalMeter, PlayTally } from '../tally.ts';
import type { Collector, PlayOptions } from './collector.ts';
import type { GroupOutcome } from './group.ts';

export interface StreamSettings {
  readonly collector: Pick<Collector, 'play'>;
  readonly agent: Player;
  /** Rewards the episodes; absent: the environment alone does. */
  readonly reward?: RewardHook;
  readonly sampling: PlayOptions['sampling'];
  /** The n-th group of the run, from 0, with the seed of its draws. Equal n, equal plan. */
  readonly planAt: (n: number) => GroupPlan;
  /** Groups of a batch, and episodes of a group. */
  readonly batchGroups: number;
  readonly groupSize: number;
  readonly maxStaleness: number;
  /** Episodes open at once. */
  readonly concurrency: number;
  readonly start: StreamPosition;
  /** Called with each group that could not be completed. */
  readonly onDropped?: (plan: GroupPlan, error: Error) => void;
  /** Called with each episode that got no reward and is missing in its group. */
  readonly onLost?: (plan: GroupPlan, error: Error) => void;
}

/** Position of a stream: a stream that starts there plays again every group that this one has not handed out. */
export interface StreamPosition {
  /** Number of the next group that has not been started. */
  readonly next: number;
  /** Numbers of the groups that were started and not handed out, ascending. */
  readonly pending: readonly number[];
}

/** A completed group that was handed out. */
export interface StreamedGroup {
  readonly n: number;
  readonly episodes: readonly Episode[];
  /** Batches trained on since the group was started. */
  readonly staleness: number;
}

class GroupCounts {
  completedEpisodes = 0;
  droppedGroups = 0;
  erroredEpisodes = 0;
  /** Episodes missing in completed groups. */
  lostEpisodes = 0;
  /** Groups that were dropped because an episode did not fit the policy's context. */
  tooLongGroups = 0;
  /** Groups that were completed too late to be trained on. */
  staleGroups = 0;
  actions = 0;
}

/** Counts since the last read. */
export interface StreamCounts extends Readonly<GroupCounts> {
  readonly tally: PlayTally;
  /** Share of the time in which no episode was open. */
  readonly idleShare: number;
}

interface RunningGroup {
  readonly n: number;
  readonly version: number;
}

/**
 * Plays groups without pause while batches of them are trained on. New ones start as long as {@link startCapacity}
 * allows. Completed ones are handed out oldest first; those that would be older than `maxStaleness` are abandoned and
 * counted. With `maxStaleness` 0 the next batch starts when the last has been trained on.
 */
export class RolloutStream {
  readonly #settings: StreamSettings;
  readonly #abort = new AbortController();
  readonly #started = new Map<GroupPlan, RunningGroup>();
  readonly #retry: number[];
  readonly #running = new IntervalMeter();
  readonly #tally = new PlayTally();
  #ready: (RunningGroup & { readonly episodes: readonly Episode[] })[] = [];
  #next: number;
  #version = 0;
  #accepted = 0;
  #runningEpisodes = 0;
  #counts = new GroupCounts();
  /** Groups dropped since the last that was completed. */
  #dropsInARow = 0;
  #failure: { readonly error: unknown } | undefined;
  #changed = Promise.withResolvers<void>();
  readonly #done: Promise<void>;

  constructor(settings: StreamSettings) {
    this.#settings = settings;
    this.#retry = [...settings.start.pending];
    this.#next = settings.start.next;
    const { agent, reward, sampling } = settings;
    this.#done = settings.collector
      .play(
        this.#plans(),
        { agent, ...(reward ? { reward } : {}), sampling, samplingSeed: 0, signal: this.#abort.signal },
        outcome => this.#ended(outcome),
        this.#tally,
      )
      .catch(error => {
        if (!this.#abort.signal.aborted) this.#fail(error);
      });
  }

  get position(): StreamPosition {
    const pending = [
      ...this.#retry,
      ...[...this.#started.values()].map(({ n }) => n),
      ...this.#ready.map(({ n }) => n),
    ];
    return { next: this.#next, pending: pending.sort((a, b) => a - b) };
  }

  /**
   * Waits for this many completed groups and hands them out in the order of their numbers.
   * @throws the signal's reason when it is aborted; the first error when nothing more can be completed
   */
  async take(groups: number, signal: AbortSignal): Promise<StreamedGroup[]> {
    this.#dropStale();
    while (this.#ready.length < groups) {
      signal.throwIfAborted();
      if (this.#failure) throw this.#failure.error;
      await orAborted(this.#changed.promise, signal);
      this.#dropStale();
    }
    const taken = this.#ready.sort((a, b) => a.n - b.n).splice(0, groups);
    return taken.map(({ n, episodes, version }) => ({ n, episodes, staleness: this.#version - version }));
  }

  /** Rejects taken groups, so that others take their place. */
  refuse(groups: number): void {
    this.#accepted -= groups * this.#settings.groupSize;
    this.#change();
  }

  /** Reports that a batch has been trained on: the weights have a new version. */
  advance(): void {
    this.#version++;
    this.#change();
  }

  /** Counts since the last call. */
  takeCounts(): StreamCounts {
    const counts = { ...this.#counts, tally: { ...this.#tally }, idleShare: 1 - this.#running.takeShare() };
    this.#counts = new GroupCounts();
    Object.assign(this.#tally, new PlayTally());
    return counts;
  }

  /** Abandons all open groups. Resolves when the close of all sessions is requested. */
  async close(): Promise<void> {
    this.#abort.abort(new DOMException('the rollouts were ended', 'AbortError'));
    this.#change();
    await this.#done;
  }

  async *#plans(): AsyncGenerator<GroupPlan> {
    const { groupSize } = this.#settings;
    while (!this.#abort.signal.aborted) {
      if (this.#capacity() >= groupSize) yield this.#open();
      else await this.#changed.promise;
    }
  }

  #capacity(): number {
    const { maxStaleness, batchGroups, groupSize, concurrency } = this.#settings;
    return startCapacity({
      maxStaleness,
      version: this.#version,
      batchSize: batchGroups * groupSize,
      concurrency,
      accepted: this.#accepted,
      running: this.#runningEpisodes,
    });
  }

  #open(): GroupPlan {
    const n = this.#retry.shift() ?? this.#next++;
    const plan = this.#settings.planAt(n);
    this.#started.set(plan, { n, version: this.#version });
    this.#runningEpisodes += plan.size;
    this.#running.begin();
    return plan;
  }

  #ended(outcome: GroupOutcome): void {
    const { plan } = outcome;
    const started = this.#started.get(plan)!;
    this.#started.delete(plan);
    this.#runningEpisodes -= plan.size;
    this.#running.end();
    if ('error' in outcome) {
      this.#counts.droppedGroups++;
      this.#counts.erroredEpisodes += plan.size;
      if (outcome.error instanceof EpisodeTooLong) this.#counts.tooLongGroups++;
      this.#settings.onDropped?.(plan, outcome.error);
      this.#dropsInARow++;
      if (this.#dropsInARow >= this.#settings.batchGroups) this.#fail(outcome.error);
    } else {
      const { episodes, lost } = outcome;
      this.#counts.erroredEpisodes += lost.length;
      this.#counts.lostEpisodes += lost.length;
      for (const error of lost) this.#settings.onLost?.(plan, error);
      this.#dropsInARow = 0;
      this.#accepted += plan.size;
      this.#counts.completedEpisodes += plan.size - lost.length;
      for (const { turns } of episodes) for (const turn of turns) this.#counts.actions += turn.actions.length;
      this.#ready.push({ ...started, episodes });
    }
    this.#change();
  }

  /** Abandons groups that would be trained on too late; others may start in their place. */
  #dropStale(): void {
    const oldest = this.#version - this.#settings.maxStaleness;
    const fresh = this.#ready.filter(({ version }) => version >= oldest);
    const stale = this.#ready.length - fresh.length;
    if (stale === 0) return;
    this.#ready = fresh;
    this.#counts.staleGroups += stale;
    this.#accepted -= stale * this.#settings.groupSize;
    this.#change();
  }

  #fail(error: unknown): void {
    this.#failure ??= { error };
    this.#change();
  }

  #change(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}

/** State that decides how many episodes may start. */
interface StalenessState {
  /** η: versions that an episode may lie behind the weights it is trained on with; 0 is on-policy. */
  readonly maxStaleness: number;
  /** v: batches trained on. */
  readonly version: number;
  /** B: episodes of a batch. */
  readonly batchSize: number;
  /** Episodes open at once. */
  readonly concurrency: number;
  /** Episodes that were completed and not refused, those trained on included. */
  readonly accepted: number;
  /** Episodes open now. */
  readonly running: number;
}

/**
 * Episodes that may start now: min(concurrency − running, (η + v + 1)·B − (accepted + running)). An episode that starts is then
 * trained on at most η versions later, as long as older episodes are taken first.
 *
 * Source: AReaL (Fu et al., 2025), staleness-aware training; areal `StalenessManager.get_capacity`.
 */
export function startCapacity(state: StalenessState): number {
  const { maxStaleness, version, batchSize, concurrency, accepted, running } = state;
  return Math.min(concurrency - running, (maxStaleness + version + 1) * batchSize - (accepted + running));
}
