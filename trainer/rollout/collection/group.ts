import { atEnd, onAbort } from '../../../shared/closing.ts';
import { ReplyTimeout, ServerUnavailable } from '../../client/retry.ts';
import type { ServerPool } from '../../client/servers.ts';
import { UnknownWords } from '../../prompts/compact.ts';
import { type BranchParts, playTrees } from '../branching/play-tree.ts';
import type { KeptPrefix } from '../branching/prefix.ts';
import type { TreePlan, VinePlan } from '../branching/tree-plan.ts';
import { EpisodeTooLong } from '../context.ts';
import { costsTheEpisode, EnvironmentSession, ReplayDiverged } from '../environment-session.ts';
import { type Episode, type RewardSums, sumRewards } from '../episode.ts';
import { type Player, ProgramFault } from '../episode-agent.ts';
import { Play, type PlayContext, playEpisode } from '../play.ts';
import { RewardFault, type RewardHook, withHookRewards } from '../rewards/reward-hook.ts';
import { mixSeed, PURPOSE } from '../seeds.ts';
import type { GroupPlan } from '../tag.ts';

/** Setting of a group. */
export interface GroupSetting extends Omit<PlayContext, 'agent' | 'newSequence' | 'check'> {
  readonly agent: Player;
  /** Rewards its episodes; absent: the environment alone does. */
  readonly reward?: RewardHook;
  readonly servers: ServerPool;
  /** False ends its requests' wait for the service behind the environment; absent: after the wait for a server. */
  readonly mayWait?: (waitedMs: number) => boolean;
  /** A group that takes longer is given up; no limit when undefined. */
  readonly timeoutMs: number | undefined;
}

/** Fewest episodes of a group after losses: a comparison needs two. */
const MIN_COMPARED = 2;

/**
 * Outcome of a group: its episodes in the order of its members and why others were lost, or why it could not be
 * completed.
 */
export type GroupOutcome =
  | { readonly plan: GroupPlan; readonly episodes: readonly Episode[]; readonly lost: readonly RewardFault[] }
  | { readonly plan: GroupPlan; readonly error: Error };

/** A group that did not end within its time. */
class GroupTimeout extends Error {
  constructor(plan: GroupPlan, limitMs: number) {
    super(
      `a group of ${plan.tag} with seed ${plan.seed} was not over after ${limitMs / 1000} s (rollout.group_timeout_s)`,
    );
    this.name = 'GroupTimeout';
  }
}

/** A group being played. */
interface OpenGroup {
  readonly plan: GroupPlan;
  readonly setting: GroupSetting;
  /** Throws why the group or the collection has ended. */
  readonly check: () => void;
  readonly sessions: EnvironmentSession[];
  /** Sessions that are open. */
  open: number;
  /** Why it cannot be completed; its episodes end when they find it set. */
  failure: Error | undefined;
  /** Aborted with the failure. */
  readonly stop: AbortController;
}

/** Names token sequences. One counter for all groups, since several collectors may share a policy. */
let sequences = 0;
const newSequence = (): number => ++sequences;

/**
 * Plays a group to its end, its members concurrently.
 * @returns the outcome; rejects with errors that affect more than the group
 */
export async function playGroup(
  plan: GroupPlan,
  setting: GroupSetting,
  signal: AbortSignal,
): Promise<GroupOutcome> {
  const check = () => {
    signal.throwIfAborted();
    if (group.failure) throw group.failure;
  };
  const stop = new AbortController();
  const group: OpenGroup = { plan, setting, check, sessions: [], open: 0, failure: undefined, stop };
  using _abort = onAbort(signal, () => stop.abort());
  try {
    const playing = playMembers(group);
    const { timeoutMs } = setting;
    const played = await (timeoutMs === undefined ? playing : within(playing, timeoutMs, plan));
    return { plan, ...played };
  } catch (error) {
    group.failure ??= error as Error;
    if (!costsTheGroup(error)) throw error;
    return { plan, error };
  } finally {
    stop.abort();
    for (const session of group.sessions) {
      if (session.moves > 0) setting.tally.movedEpisodes++;
      setting.tally.recoverySteps += session.extraSteps.recovery;
      setting.tally.replayedSteps += session.extraSteps.replayed;
      setting.tally.envSteps += session.extraSteps.replayed;
      void session.close();
    }
  }
}

/** Episodes of a group, and why others of it were lost. */
interface Played {
  readonly episodes: Episode[];
  readonly lost: RewardFault[];
}

/**
 * Plays the members. A member without a reward is lost, and so is the group if too few are left: advantages compare the
 * episodes of a group, and any number from two can be compared.
 */
async function playMembers(group: OpenGroup): Promise<Played> {
  const { tree, vine, prefix, size } = group.plan;
  if (tree) return playTreeMembers(group, tree);
  if (vine) return playVineMembers(group, vine);
  if (prefix) return playContinuations(group, prefix);
  await openSessions(group, size);
  return concluded(
    group,
    group.sessions.map((session, member) => playMember(group, member, session)),
  );
}

/** Opens sessions that start from the group's state. */
async function openSessions(group: OpenGroup, count: number): Promise<void> {
  const { plan, setting } = group;
  const { tag, seedable, hasDynamicsSeed, copyable, constrained } = setting.described;
  const { prefix } = plan;
  // Members share the level but not the randomness after it; otherwise a group compares actions under a single outcome
  // of chance.
  const luck = hasDynamicsSeed && plan.size > 1 ? mixSeed(plan.seed, PURPOSE.dynamics) : undefined;
  const opened = await EnvironmentSession.openGroup(
    setting.servers,
    {
      environmentId: tag.environmentId,
      validActions: constrained,
      tag: tag.name,
      config: tag.config,
      options: tag.options,
      seed: seedable ? plan.seed : undefined,
      dynamicsSeed: prefix ? prefix.dynamicsSeed : luck,
      groupName: `${tag.name}/${plan.seed}/${plan.groupId}`,
      copyable,
      stateKeys: plan.stateKeys,
      record: plan.record,
      mayWait: setting.mayWait,
      // A program plays by itself, so the server enforces the cap on actions.
      ...(!('respond' in setting.agent) &&
        setting.agent.acts !== false && {
          wrappers: [{ name: 'time_limit', options: { max_steps: tag.maxActionsPerTrajectory } }],
        }),
    },
    count,
  );
  admit(group, opened);
}

/**
 * Adds sessions to a group.
 * @throws the group's failure, if it has ended: the sessions are closed then
 */
function admit(group: OpenGroup, opened: readonly EnvironmentSession[]): void {
  const { tally } = group.setting;
  if (group.stop.signal.aborted) {
    for (const session of opened) void session.close();
    throw group.failure ?? group.stop.signal.reason;
  }
  group.sessions.push(...opened);
  group.open += opened.length;
  tally.openSessionsMax = Math.max(tally.openSessionsMax, group.open);
}

/** Notes the error that ends a group. */
const failing =
  (group: OpenGroup) =>
  (error: Error): void => {
    group.failure ??= error;
    group.stop.abort();
  };

/** The outcome of episodes that are being played. @throws what ended the group */
async function concluded(
  group: OpenGroup,
  playing: readonly Promise<Episode | RewardFault>[],
): Promise<Played> {
  const played = await Promise.all(playing.map(episode => episode.catch(failing(group))));
  const lost = played.filter(result => result instanceof RewardFault);
  const episodes = played.flatMap(result => (!result || result instanceof RewardFault ? [] : [result]));
  return comparable(group, { episodes, lost });
}

/** @throws what ended the group, and why episodes were lost where too few are left */
function comparable({ failure }: OpenGroup, played: Played): Played {
  if (failure) throw failure;
  if (played.lost.length > 0 && played.episodes.length < MIN_COMPARED) throw played.lost[0];
  return played;
}

/** Plays the trees of a group: its episodes are their leaves. */
async function playTreeMembers(group: OpenGroup, tree: TreePlan): Promise<Played> {
  const lost: RewardFault[] = [];
  await openSessions(group, tree.roots);
  const parts = { ...branchParts(group, lost), tree, onFailure: failing(group) };
  return comparable(group, { episodes: await playTrees(parts, [...group.sessions]), lost });
}

/** Plays the members, each with continuations from before its turns; continuations without a reward are ignored. */
async function playVineMembers(group: OpenGroup, vine: VinePlan): Promise<Played> {
  await openSessions(group, group.plan.size);
  const members = [...group.sessions];
  return concluded(
    group,
    members.map(async (session, member) => {
      const lost: RewardFault[] = [];
      const parts = branchParts(group, lost);
      const play = Play.open(group.plan, member, session, parts.setting);
      using _tokens = atEnd(() => play.release());
      return (await playVine(parts, vine, play)) ?? lost.at(-1)!;
    }),
  );
}

/** @param lost collects why episodes got no reward */
function branchParts(group: OpenGroup, lost: RewardFault[]): BranchParts {
  return {
    plan: group.plan,
    setting: playContext(group),
    onOpened: sessions => admit(group, sessions),
    onEnded: session => {
      group.open--;
      void session.close();
    },
    rewarded: async episode => {
      const result = await withReward(episode, group.setting);
      if (!(result instanceof RewardFault)) return result;
      lost.push(result);
      return undefined;
    },
  };
}

/** Plays episodes that continue an earlier one: its turns are carried out once, and clones continue from there. */
async function playContinuations(group: OpenGroup, prefix: KeptPrefix): Promise<Played> {
  const { plan, setting, check } = group;
  const { reseedable } = setting.described;
  await openSessions(group, 1);
  const [beginning] = group.sessions;
  const base = Play.open(plan, 0, beginning, playContext(group));
  using _tokens = atEnd(() => base.release());
  await base.takeOver(prefix.played, prefix.kind);
  const luck = mixSeed(plan.seed, PURPOSE.branchLuck, plan.groupId, prefix.step);
  const sessions = await beginning.branch(plan.size, reseedable ? luck : undefined);
  admit(group, sessions);
  void beginning.close();
  check();
  const continued = async (session: EnvironmentSession, member: number) => {
    const episode = await base.fork(member, session, [member]).toEnd();
    void session.close();
    return withReward(episode, setting);
  };
  return await concluded(group, sessions.map(continued));
}

/** @throws Error where a program plays, because the trainer does not know its state */
function playContext({ setting, check }: OpenGroup): PlayContext {
  const { agent, ...others } = setting;
  if (!('respond' in agent))
    throw new Error('episodes that a program plays cannot branch: its state is its own');
  return { ...others, agent, newSequence, check };
}

/** The episode with the hook's reward, or why it has none. */
async function withReward(episode: Episode, { reward }: GroupSetting): Promise<Episode | RewardFault> {
  if (!reward) return episode;
  try {
    return await withHookRewards(episode, reward);
  } catch (error) {
    if (error instanceof RewardFault) return error;
    throw error;
  }
}

async function playMember(
  { plan, setting, check, stop }: OpenGroup,
  member: number,
  session: EnvironmentSession,
): Promise<Episode | RewardFault> {
  const { agent } = setting;
  const episode = await ('play' in agent
    ? agent.play(plan, member, session, { ...setting, newSequence, check, signal: stop.signal })
    : playEpisode(plan, member, session, { ...setting, agent, newSequence, check }));
  return withReward(episode, setting);
}

/**
 * The work's result.
 * @throws GroupTimeout when it takes longer; a later result is ignored
 */
async function within<T>(work: Promise<T>, limitMs: number, plan: GroupPlan): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new GroupTimeout(plan, limitMs)), limitMs);
  using _timer = atEnd(() => clearTimeout(timer));
  return await Promise.race([work, late.promise]);
}

/** Failures that end only their group; anything else is a fault of ragen or of the configuration. */
function costsTheGroup(error: unknown): error is Error {
  return (
    costsTheEpisode(error) ||
    error instanceof ReplyTimeout ||
    error instanceof ServerUnavailable ||
    error instanceof ReplayDiverged ||
    error instanceof ProgramFault ||
    error instanceof GroupTimeout ||
    error instanceof EpisodeTooLong ||
    error instanceof UnknownWords
  );
}

/**
 * Plays an episode, and continuations from before its turns to their end: their returns are the values of its
 * histories. The episode waits for them, so a member of a group has at most 1 + `clones` open sessions.
 * @param play its episode, at the start; the caller releases it
 * @returns the episode; undefined where it gets no reward
 */
async function playVine(
  parts: BranchParts,
  { clones, every, freshLuck }: VinePlan,
  play: Play,
): Promise<Episode | undefined> {
  const { plan, setting } = parts;
  const continuations: RewardSums[][] = [];
  while (play.canGoOn) {
    setting.check();
    const done = play.turns.length;
    if (done % every === 0) {
      const luck = mixSeed(plan.seed, PURPOSE.branchLuck, play.member, done);
      const fresh = freshLuck && setting.described.reseedable;
      const sessions = await play.session.branch(clones, fresh ? luck : undefined);
      parts.onOpened(sessions);
      setting.tally.branches++;
      setting.tally.branchTurns += done;
      const played = await Promise.all(
        sessions.map((session, clone) =>
          continued(parts, play.fork(play.member, session, [play.member, done, clone])),
        ),
      );
      continuations.push(played.flatMap(sums => sums ?? []));
    } else continuations.push([]);
    await play.turn();
  }
  const episode = play.end();
  parts.onEnded(play.session);
  return parts.rewarded({ ...episode, continuations });
}

/** Rewards of a continuation, which is not trained; undefined where it gets none. */
async function continued(parts: BranchParts, play: Play): Promise<RewardSums | undefined> {
  const { tally } = parts.setting;
  const done = play.turns.length;
  try {
    const rewarded = await parts.rewarded(await play.toEnd());
    if (!rewarded) tally.lostLeaves++;
    return rewarded && sumRewards(rewarded.turns.slice(done));
  } finally {
    for (const { sent, actions, tokens } of play.turns.slice(done)) {
      tally.cloneSteps += (sent ?? actions).length;
      tally.cloneTokens += tokens[1] - tokens[0];
    }
    parts.onEnded(play.session);
  }
}
