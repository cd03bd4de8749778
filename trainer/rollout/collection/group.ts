import { ReplyTimeout, ServerProblem, ServerUnavailable } from '../../client/errors.ts';
import type { ServerPool } from '../../client/servers.ts';
import { EpisodeTooLong } from '../context.ts';
import { EnvironmentSession, LOST_CODES, ReplayDiverged } from '../environment-session.ts';
import type { Episode } from '../episode.ts';
import { type Player, ProgramFault } from '../episode-agent.ts';
import { type PlayContext, playEpisode } from '../play.ts';
import { RewardFault, type RewardHook, withHookRewards } from '../rewards/reward-hook.ts';
import { mixSeed, PURPOSE } from '../seeds.ts';
import type { GroupPlan } from '../tag.ts';

/** Setting of a group. */
export interface GroupSetting extends Omit<PlayContext, 'agent' | 'newSequence' | 'check'> {
  readonly agent: Player;
  /** Rewards its episodes; absent: the environment alone does. */
  readonly reward?: RewardHook;
  readonly servers: ServerPool;
  /** A group that takes longer is given up; no limit when undefined. */
  readonly timeoutMs: number | undefined;
}

/** Episodes that are left of a group at least when others got no reward: what is compared needs another. */
const MIN_COMPARED = 2;

/**
 * A group that is over: its episodes in the order of its members, and why others of it were lost, or why it could not be
 * completed.
 */
export type GroupOutcome =
  | { readonly plan: GroupPlan; readonly episodes: readonly Episode[]; readonly lost: readonly RewardFault[] }
  | { readonly plan: GroupPlan; readonly error: Error };

/** A group that did not end within its time. */
export class GroupTimeout extends Error {
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
  sessions: readonly EnvironmentSession[];
  /** Why it cannot be completed; its episodes end when they find it set. */
  failure: Error | undefined;
  /** Aborted with the failure, for those who wait. */
  readonly stop: AbortController;
}

/** Names token sequences. One counter for all groups, since several collectors may share a policy. */
let sequences = 0;
const newSequence = (): number => ++sequences;

/**
 * Plays a group to its end, its members side by side.
 * @param onMoves called with the number of its episodes that had to continue at another server, if any
 * @returns the outcome; rejects with errors that cost more than the group
 */
export async function playGroup(
  plan: GroupPlan,
  setting: GroupSetting,
  signal: AbortSignal,
  onMoves: (count: number) => void,
): Promise<GroupOutcome> {
  const group: OpenGroup = { plan, sessions: [], failure: undefined, stop: new AbortController() };
  const check = () => {
    signal.throwIfAborted();
    if (group.failure) throw group.failure;
  };
  const abort = () => group.stop.abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    const playing = playMembers(group, setting, check);
    const { timeoutMs } = setting;
    const played = await (timeoutMs === undefined ? playing : within(playing, timeoutMs, plan));
    return { plan, ...played };
  } catch (error) {
    group.failure ??= error as Error;
    if (!costsTheGroup(error)) throw error;
    return { plan, error };
  } finally {
    signal.removeEventListener('abort', abort);
    group.stop.abort();
    let moves = 0;
    for (const session of group.sessions) {
      if (session.moves > 0) moves++;
      session.close();
    }
    if (moves > 0) onMoves(moves);
  }
}

/**
 * Plays the members. One that gets no reward costs its episode, and the group where too few are left: advantages compare the
 * episodes of a group, and any number from two can be compared.
 */
async function playMembers(
  group: OpenGroup,
  setting: GroupSetting,
  check: () => void,
): Promise<{ readonly episodes: Episode[]; readonly lost: RewardFault[] }> {
  const { plan } = group;
  const { tag, seedable, hasDynamicsSeed } = setting.described;
  const sessions = await EnvironmentSession.openGroup(
    setting.servers,
    {
      environmentId: tag.environmentId,
      tag: tag.name,
      config: tag.config,
      options: tag.options,
      seed: seedable ? plan.seed : undefined,
      // Members share the level, not the luck: else a group compares actions under one outcome of chance.
      dynamicsSeed: hasDynamicsSeed && plan.size > 1 ? mixSeed(plan.seed, PURPOSE.dynamics) : undefined,
      groupName: `${tag.name}/${plan.seed}/${plan.groupId}`,
      record: plan.record,
      // A program plays by itself, so the server keeps to the cap on actions.
      ...(!('respond' in setting.agent) &&
        setting.agent.acts !== false && {
          wrappers: [{ name: 'time_limit', options: { max_steps: tag.maxActionsPerTrajectory } }],
        }),
    },
    plan.size,
  );
  if (group.failure) {
    for (const session of sessions) session.close();
    throw group.failure;
  }
  group.sessions = sessions;
  const played = await Promise.allSettled(
    sessions.map(async (session, member) => {
      try {
        return await playMember(group, member, session, setting, check);
      } catch (error) {
        if (error instanceof RewardFault) return error;
        group.failure ??= error as Error;
        group.stop.abort();
        throw error;
      }
    }),
  );
  if (group.failure) throw group.failure;
  const results = played.flatMap(result => (result.status === 'fulfilled' ? [result.value] : []));
  const lost = results.filter(result => result instanceof RewardFault);
  const episodes = results.flatMap(result => (result instanceof RewardFault ? [] : [result]));
  if (lost.length > 0 && episodes.length < MIN_COMPARED) throw lost[0];
  return { episodes, lost };
}

async function playMember(
  { plan, stop }: OpenGroup,
  member: number,
  session: EnvironmentSession,
  { agent, reward, ...setting }: GroupSetting,
  check: () => void,
): Promise<Episode> {
  const episode = await ('play' in agent
    ? agent.play(plan, member, session, { ...setting, newSequence, check, signal: stop.signal })
    : playEpisode(plan, member, session, { ...setting, agent, newSequence, check }));
  return reward ? withHookRewards(episode, reward) : episode;
}

/** The work's result. @throws GroupTimeout when it takes longer; what it then comes to is nobody's concern */
async function within<T>(work: Promise<T>, limitMs: number, plan: GroupPlan): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new GroupTimeout(plan, limitMs)), limitMs);
  try {
    return await Promise.race([work, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** Failures that cost a group and nothing more; anything else is a fault of ours or of the configuration. */
function costsTheGroup(error: unknown): error is Error {
  if (error instanceof ServerProblem) return error.status >= 500 || LOST_CODES.has(error.code);
  return (
    error instanceof ReplyTimeout ||
    error instanceof ServerUnavailable ||
    error instanceof ReplayDiverged ||
    error instanceof ProgramFault ||
    error instanceof GroupTimeout ||
    error instanceof EpisodeTooLong
  );
}
