import type { ServerPool } from '../../client/servers.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import type { Prompt } from '../../prompts/prompt.ts';
import { createPrompt, type PromptName } from '../../prompts/templates.ts';
import { type ContextSettings, EpisodeTooLong, FULL_CONTEXT } from '../context.ts';
import { type DescribedTag, promptTask, type ResponseSettings } from '../described-tag.ts';
import type { Episode } from '../episode.ts';
import type { Player } from '../episode-agent.ts';
import type { PlayContext } from '../play.ts';
import type { RewardHook } from '../rewards/reward-hook.ts';
import type { GroupPlan } from '../tag.ts';
import { budgetMetrics, PlayTally } from '../tally.ts';
import { type GroupOutcome, playGroup } from './group.ts';

export interface CollectorSettings {
  readonly servers: ServerPool;
  /** From `describeTags`; groups are planned on these. */
  readonly tags: readonly DescribedTag[];
  readonly prompt: PromptName;
  readonly response: ResponseSettings;
  /** Absent for agents that read and write text; episodes then carry no tokens. */
  readonly tokenizer?: Tokenizer;
  /** Longest sequence the policy takes, in tokens; needed with a tokenizer. */
  readonly maxSequenceLength?: number;
  /** Full context by default. */
  readonly context?: Pick<ContextSettings, 'mode' | 'window'>;
  /** Responses also end once they contain one of these. */
  readonly stopStrings?: readonly string[];
  /** Episodes open at once. */
  readonly concurrency: number;
  /** A group that takes longer is abandoned; no limit when absent. */
  readonly groupTimeoutMs?: number;
  /** Milliseconds after which a collection that may be partial does without environments with a service that is away. */
  readonly outageMs?: number;
}

export interface PlayOptions {
  readonly agent: Player;
  readonly sampling: Omit<PlayContext['sampling'], 'stopStrings'>;
  /** Seeds all draws of the agents; the same seed, plans and weights give the same episodes. */
  readonly samplingSeed: number;
  /** Rewards the episodes; absent: the environment alone does. */
  readonly reward?: RewardHook;
  /** The collection does without environments with a service that is away, see {@link OutageLimit}. */
  readonly isPartial?: boolean;
  /** Ends the collection; its reason is thrown. */
  readonly signal?: AbortSignal;
}

export interface Collection {
  /** Episodes of completed groups, in the order of their plans and members. */
  readonly episodes: readonly Episode[];
  /** Groups that could not be completed, with the reason. */
  readonly dropped: readonly { readonly plan: GroupPlan; readonly error: Error }[];
  /** Episodes without a reward, which are missing in their groups, with the reason. */
  readonly lost: readonly { readonly plan: GroupPlan; readonly error: Error }[];
  readonly metrics: CollectionMetrics;
}

type CollectionMetrics = { readonly [name: string]: number };

/**
 * Plays groups of episodes, many at once: each waits either for its agent or for its environment, and those that wait for
 * the same server in the same turn of the event loop share a request. A failed server is waited for, left for another or,
 * when an episode cannot be saved, costs its group.
 *
 * @example
 * const servers = openServers([{ url: 'http://127.0.0.1:8080' }]);
 * const tags = await describeTags(servers, [tag]);
 * const response = { responseLength: 8, think: true };
 * const tokenizer = buildWordTokenizer(compactVocabulary(tags.map(one => promptTask(one, response))));
 * const collector = new Collector({ servers, tags, prompt: 'compact', response, tokenizer, maxSequenceLength: 161, concurrency: 256 });
 * const plans = planGroups({ tags: [{ tag: tag.name, groups: 8 }], groupSize: 16, firstSeed: 10_000 });
 * const { episodes, metrics } = await collector.collect(plans, {
 *   agent: policyAgent(policy), sampling: { temperature: 1, topK: 0, topP: 1 }, samplingSeed: 7,
 * });
 */
export class Collector {
  /** Part of an episode that the prompts show, and their longest length. */
  readonly context: ContextSettings;
  readonly #settings: CollectorSettings;
  readonly #tags: ReadonlyMap<string, { readonly described: DescribedTag; readonly prompt: Prompt }>;

  /** @throws Error when the tokenizer cannot write the prompts */
  constructor(settings: CollectorSettings) {
    const { tokenizer, maxSequenceLength } = settings;
    if (tokenizer && !maxSequenceLength) {
      throw new Error(
        'a collector with a tokenizer needs maxSequenceLength, the longest sequence of the policy',
      );
    }
    if (!(settings.concurrency >= 1)) {
      throw new RangeError(`concurrency must be at least 1, got ${settings.concurrency}`);
    }
    this.#settings = settings;
    this.context = { ...FULL_CONTEXT, ...settings.context, maxSequenceLength: maxSequenceLength ?? 0 };
    this.#tags = new Map(
      settings.tags.map(described => [
        described.tag.name,
        {
          described,
          prompt: createPrompt(settings.prompt, promptTask(described, settings.response), tokenizer),
        },
      ]),
    );
  }

  /** The prompt of a tag: stop tokens, action tokens, wording. @throws Error for an unknown tag */
  prompt(tag: string): Prompt {
    return this.#tag(tag).prompt;
  }

  /**
   * Plays all groups and waits for the last. Incomplete groups are left out and reported.
   * @throws the first error when no group was completed, or when an error affects more than its group
   */
  async collect(plans: readonly GroupPlan[], options: PlayOptions): Promise<Collection> {
    const start = performance.now();
    const tally = new PlayTally();
    const position = new Map(plans.map((plan, i) => [plan, i]));
    const completed: (readonly Episode[] | undefined)[] = plans.map(() => undefined);
    const dropped: { plan: GroupPlan; error: Error }[] = [];
    const lost: { plan: GroupPlan; error: Error }[] = [];
    const { outageMs } = this.#settings;
    const outage = options.isPartial && outageMs !== undefined ? new OutageLimit(plans, outageMs) : undefined;
    await this.play(
      plans,
      options,
      outcome => {
        if ('error' in outcome) dropped.push(outcome);
        else {
          completed[position.get(outcome.plan)!] = outcome.episodes;
          lost.push(...outcome.lost.map(error => ({ plan: outcome.plan, error })));
        }
      },
      tally,
      outage,
    );
    const episodes = completed.flatMap(group => group ?? []);
    if (episodes.length === 0 && dropped.length > 0) throw dropped[0].error;
    const seconds = (performance.now() - start) / 1000;
    const steps = episodes.reduce(
      (sum, episode) => sum + episode.turns.reduce((count, turn) => count + turn.actions.length, 0),
      0,
    );
    const share = (ms: number): number => ms / 1000 / Math.max(1, episodes.length);
    return {
      episodes,
      dropped,
      lost,
      metrics: {
        'timing_s/rollout': seconds,
        'rollouter/episodes_per_second': episodes.length / seconds,
        'rollouter/steps': steps,
        ...budgetMetrics(tally),
        'rollouter/agent_wait_s': share(tally.agentMs),
        'rollouter/environment_wait_s': share(tally.environmentMs),
        'rollouter/replayed_episodes': tally.movedEpisodes,
        'rollouter/dropped_groups': dropped.length,
        'rollouter/lost_episodes': lost.length,
        'rollouter/cut_observations': tally.cutObservations,
        'rollouter/too_long_groups': dropped.filter(({ error }) => error instanceof EpisodeTooLong).length,
        errored_rollouts: dropped.reduce((sum, group) => sum + group.plan.size, lost.length),
      },
    };
  }

  /**
   * Plays groups as room becomes free and reports each when it ends, in any order. Plans are drawn one at a time when
   * there is room for one, so a source can delay new episodes by waiting.
   */
  async play(
    plans: Iterable<GroupPlan> | AsyncIterable<GroupPlan>,
    options: PlayOptions,
    onGroup: (outcome: GroupOutcome) => void,
    tally = new PlayTally(),
    outage?: OutageLimit,
  ): Promise<void> {
    const { concurrency } = this.#settings;
    const stop = new AbortController();
    const signal = options.signal ? AbortSignal.any([options.signal, stop.signal]) : stop.signal;
    let open = 0;
    let wake = (): void => {};
    const change = (): Promise<void> =>
      new Promise(resolve => {
        wake = resolve;
      });
    let fatal: unknown;
    for await (const plan of plans) {
      while (open > 0 && open + plan.size > concurrency && !signal.aborted) await change();
      if (signal.aborted) break;
      open += plan.size;
      outage?.opened(plan.tag);
      this.#playGroup(plan, options, { tally, outage }, signal)
        .then(outcome => {
          outage?.ended(plan.tag, 'episodes' in outcome);
          onGroup(outcome);
        })
        .catch(error => {
          fatal ??= error;
          stop.abort(error);
        })
        .finally(() => {
          open -= plan.size;
          wake();
        });
    }
    while (open > 0) await change();
    options.signal?.throwIfAborted();
    if (fatal !== undefined) throw fatal;
  }

  async #playGroup(
    plan: GroupPlan,
    options: PlayOptions,
    { tally, outage }: { readonly tally: PlayTally; readonly outage?: OutageLimit },
    signal: AbortSignal,
  ): Promise<GroupOutcome> {
    const { servers, tokenizer, groupTimeoutMs, stopStrings } = this.#settings;
    const setting = {
      ...this.#tag(plan.tag),
      servers,
      timeoutMs: groupTimeoutMs,
      ...(outage ? { mayWait: (waitedMs: number) => outage.mayWait(plan.tag, waitedMs) } : {}),
      tokenizer,
      agent: options.agent,
      ...(options.reward ? { reward: options.reward } : {}),
      context: { ...this.context, whole: plan.whole },
      sampling: { ...options.sampling, stopStrings },
      samplingSeed: plan.samplingSeed ?? options.samplingSeed,
      tally,
    };
    return playGroup(plan, setting, signal);
  }

  #tag(name: string): { readonly described: DescribedTag; readonly prompt: Prompt } {
    const tag = this.#tags.get(name);
    if (!tag) throw new Error(`no tag is named ${name}; there are: ${[...this.#tags.keys()].join(', ')}`);
    return tag;
  }
}

interface TagGroups {
  open: number;
  /** Groups that have not ended, open or not begun. */
  left: number;
  completed: number;
}

/**
 * Ends the wait for a service that is away, so that it does not block the groups of other environments: its groups are given up
 * once a request has waited for the limit and no open group plays. Where all tags wait, or there is one alone, the wait continues.
 */
class OutageLimit {
  readonly #limitMs: number;
  readonly #groups = new Map<string, TagGroups>();
  /** Tags with a request that has waited for the limit. */
  readonly #late = new Set<string>();
  readonly #givenUp = new Set<string>();

  /** @param limitMs milliseconds from the first failure of a request */
  constructor(plans: readonly GroupPlan[], limitMs: number) {
    this.#limitMs = limitMs;
    for (const [tag, { length: left }] of Map.groupBy(plans, plan => plan.tag)) {
      this.#groups.set(tag, { open: 0, left, completed: 0 });
    }
  }

  opened(tag: string): void {
    this.#of(tag).open++;
  }

  ended(tag: string, isCompleted: boolean): void {
    const groups = this.#of(tag);
    groups.open--;
    groups.left--;
    if (!isCompleted) return;
    groups.completed++;
    this.#late.delete(tag);
  }

  /** True while a request of the tag waits for its service, which it has done for so many milliseconds. */
  mayWait(tag: string, waitedMs: number): boolean {
    if (this.#givenUp.has(tag)) return false;
    if (waitedMs < this.#limitMs) return true;
    this.#late.add(tag);
    const others = [...this.#groups].filter(([name]) => !this.#late.has(name));
    const isPlayed = others.some(([, { open }]) => open > 0);
    const hasOthers = others.some(([, { left, completed }]) => left > 0 || completed > 0);
    if (isPlayed || !hasOthers) return true;
    this.#givenUp.add(tag);
    return false;
  }

  #of(tag: string): TagGroups {
    return this.#groups.get(tag)!;
  }
}
