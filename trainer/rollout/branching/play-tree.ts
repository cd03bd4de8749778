import { atEnd } from '../../../shared/closing.ts';
import { Random } from '../../../shared/random.ts';
import type { EnvironmentSession } from '../environment-session.ts';
import { type Episode, withoutTurns } from '../episode.ts';
import { Play, type PlayContext } from '../play.ts';
import { mixSeed, PURPOSE } from '../seeds.ts';
import type { GroupPlan } from '../tag.ts';
import { branchProbability, plannedTurns, type TreePlan } from './tree-plan.ts';

/** Leaf of a tree: its path of child numbers from the root on. */
interface Leaf {
  readonly path: readonly number[];
  readonly episode: Episode;
}

/** Settings and callbacks of episodes that branch. */
export interface BranchParts {
  readonly plan: GroupPlan;
  readonly setting: PlayContext;
  /** Called with sessions that were opened, and that ended. */
  readonly onOpened: (sessions: readonly EnvironmentSession[]) => void;
  readonly onEnded: (session: EnvironmentSession) => void;
  /** Rewards a finished episode; undefined for one that gets no reward and is left out. */
  readonly rewarded: (episode: Episode) => Promise<Episode | undefined>;
}

export interface TreeParts extends BranchParts {
  readonly tree: TreePlan;
  /** Called with the error that ends the group. */
  readonly onFailure: (error: Error) => void;
}

/**
 * Plays the trees of a group, all chains concurrently. A chain branches after a turn: its session is cloned there, and
 * the copies continue with other draws of the policy and, if the plan says so, of the environment. Node numbers follow
 * the tree's shape, not the order in which chains end.
 * @returns the leaves in the order of their paths; a turn that several share is trained in the first of them
 */
export async function playTrees(parts: TreeParts, roots: readonly EnvironmentSession[]): Promise<Episode[]> {
  const leaves: Leaf[] = [];
  const chains: Promise<void>[] = [];
  const spawn = (play: Play, path: readonly number[], depth: number): void => {
    const chain = playChain(parts, { play, path, depth, spawn }).then(leaf => {
      if (leaf) leaves.push(leaf);
    });
    chains.push(chain.catch(parts.onFailure));
  };
  const { plan, setting, tree } = parts;
  roots.forEach((session, root) => {
    spawn(Play.open(plan, root, session, setting), [root], tree.depth);
  });
  // Chains add others while they are played.
  for (let i = 0; i < chains.length; i++) await chains[i];
  leaves.sort((a, b) => comparePaths(a.path, b.path));
  setting.tally.leaves += leaves.length;
  return trainedOnce(leaves.map(({ episode }, member) => renumbered(episode, member)));
}

interface Chain {
  readonly play: Play;
  readonly path: readonly number[];
  /** Remaining generations of branches. */
  readonly depth: number;
  readonly spawn: (play: Play, path: readonly number[], depth: number) => void;
}

async function playChain(parts: TreeParts, chain: Chain): Promise<Leaf | undefined> {
  const { plan, tree, setting } = parts;
  const { play, depth, spawn } = chain;
  const { tally, samplingSeed } = setting;
  let { path } = chain;
  const choice = (...more: number[]) =>
    mixSeed(samplingSeed, PURPOSE.branchChoice, plan.groupId, ...chain.path, ...more);
  const turns = new Set(
    plannedTurns(tree, {
      maxTurns: setting.described.tag.maxTurns,
      done: play.turns.length,
      seed: choice(),
    }),
  );
  let branches = tree.where === 'entropy' ? tree.branches : turns.size;
  using _tokens = atEnd(() => play.release());
  while (play.canGoOn) {
    setting.check();
    play.node = path.join('.');
    await play.turn();
    const done = play.turns.length;
    const isPlanned =
      turns.has(done) || (tree.where === 'entropy' && isUncertain(tree, setting, play, choice(done)));
    const mayBranch = (tree.where === 'fixed' || depth > 0) && branches > 0;
    if (!play.canGoOn || !mayBranch || !isPlanned) continue;
    branches--;
    const luck = mixSeed(plan.seed, PURPOSE.branchLuck, ...path, done);
    const count = tree.where === 'entropy' ? 1 : tree.children - 1;
    const fresh = tree.freshLuck && setting.described.reseedable;
    const sessions = await play.session.branch(count, fresh ? luck : undefined);
    parts.onOpened(sessions);
    setting.check();
    tally.branches++;
    tally.branchTurns += done;
    sessions.forEach((session, i) => {
      const own = [...path, i + 1];
      spawn(play.fork(play.member, session, own), own, depth - 1);
    });
    path = [...path, 0];
  }
  const episode = play.end();
  parts.onEnded(play.session);
  const rewarded = await parts.rewarded(episode);
  if (!rewarded) tally.lostLeaves++;
  return rewarded && { path, episode: rewarded };
}

/** A draw that depends on the surprisal of the turn's first tokens, an estimate of their entropy. */
function isUncertain(tree: TreePlan, { tokenizer }: PlayContext, play: Play, seed: number): boolean {
  const scale = Math.log(Math.max(2, tokenizer?.vocabularySize ?? 2));
  const { first, last } = play.surprisals;
  return Random.fromSeed(seed).chance(branchProbability(last / scale, first / scale, tree));
}

function comparePaths(a: readonly number[], b: readonly number[]): number {
  for (let i = 0; i < Math.min(a.length, b.length); i++) if (a[i] !== b[i]) return a[i] - b[i];
  return a.length - b.length;
}

function renumbered(episode: Episode, member: number): Episode {
  const { tag, seed, groupId } = episode;
  return { ...episode, member, episodeId: `${tag}/${seed}/${groupId}.${member}` };
}

/** The episodes, with each shared turn only in the loss mask of the first. */
function trainedOnce(episodes: readonly Episode[]): Episode[] {
  const owners = new Map<string, number>();
  return episodes.map((episode, member) => {
    const keys = episode.nodes!.map((node, turn) => `${node} ${turn}`);
    for (const key of keys) if (!owners.has(key)) owners.set(key, member);
    return withoutTurns(episode, turn => owners.get(keys[turn]) !== member);
  });
}
