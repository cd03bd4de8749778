import { type Episode, type RewardSums, sumRewards } from '../episode.ts';
import type { Play } from '../play.ts';
import { mixSeed, PURPOSE } from '../seeds.ts';
import type { BranchParts } from './play-tree.ts';
import type { VinePlan } from './tree-plan.ts';

/**
 * Plays an episode, and from before its turns other continuations to their end: the returns of those are the values of its
 * histories. The episode waits for them, so that a member of a group has at most 1 + `clones` sessions open.
 * @param play its episode, at the start; the caller releases it
 * @returns the episode; undefined where it gets no reward
 */
export async function playVine(
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

/** Rewards of a continuation, which nobody is trained on; undefined where it gets none. */
async function continued(parts: BranchParts, play: Play): Promise<RewardSums | undefined> {
  const { setting } = parts;
  const { tally } = setting;
  const done = play.turns.length;
  try {
    while (play.canGoOn) {
      setting.check();
      await play.turn();
    }
    const rewarded = await parts.rewarded(play.end());
    if (!rewarded) tally.lostLeaves++;
    return rewarded && sumRewards(rewarded.turns.slice(done));
  } finally {
    for (const { sent, actions, tokens } of play.turns.slice(done)) {
      tally.cloneSteps += (sent ?? actions).length;
      tally.cloneTokens += tokens[1] - tokens[0];
    }
    play.release();
    parts.onEnded(play.session);
  }
}
