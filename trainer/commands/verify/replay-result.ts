import { randomInt } from 'node:crypto';
import type { JsonObject } from '../../../shared/json.ts';
import type { SignedEpisode } from '../../../shared/run-folder/signed-episode.ts';
import {
  canonicalJson,
  type PlayedResult,
  type ReplayVerdict,
} from '../../../shared/run-folder/signed-result.ts';
import { orAborted } from '../../client/retry.ts';
import type { EnvServerSettings } from '../../client/server.ts';
import { openServers } from '../../client/servers.ts';
import { groupBy } from '../../data/episode-metrics.ts';
import { describeTags } from '../../rollout/described-tag.ts';
import { mixSeed, PURPOSE } from '../../rollout/seeds.ts';
import type { Tag } from '../../rollout/tag.ts';
import { successShares } from '../evaluate/evaluation.ts';
import { type Difference, replayEpisodes } from './replay.ts';

/** Episodes of a result that are played again; of more, so many at random. */
const SAMPLE = 256;
/** Longest wait for a server that is away. */
const PATIENCE_MS = 5000;

/**
 * Checks what a result says of its episodes, and plays them again.
 * @param server must not be of the author's choice
 * @param signal ends it early
 * @throws Error where the server is away, does not have the environment, or does not answer in time
 */
export async function replayResult(
  result: PlayedResult,
  episodes: readonly SignedEpisode[],
  server: Pick<EnvServerSettings, 'url' | 'token'>,
  signal: AbortSignal,
): Promise<ReplayVerdict> {
  const wrong = claimProblem(result, episodes);
  if (wrong !== undefined) return { differs: wrong };
  const { environment } = result;
  const tag: Tag = {
    name: result.tag,
    environmentId: environment.env_id,
    config: environment.config as JsonObject,
    maxTurns: environment.max_turns,
    maxActionsPerTurn: environment.max_actions_per_turn,
    maxActionsPerTrajectory: environment.max_actions_per_trajectory,
    formatPenalty: 0,
  };
  const sample = sampleOf(episodes);
  const servers = openServers([{ ...server, retry: { patienceMs: PATIENCE_MS } }]);
  try {
    const parties = { program: environment.program, hook: false };
    const replay = async () =>
      replayEpisodes(sample, parties, { servers, tags: await describeTags(servers, [tag]) });
    const differences = await orAborted(replay(), signal);
    const i = differences.findIndex(difference => difference !== undefined);
    return i === -1 ? { replayed: sample.length } : { differs: `${sample[i].episode_id}: ${differences[i]}` };
  } finally {
    await servers.close();
  }
}

/** The difference of a result from what its episodes say themselves: other levels or luck, too many turns, another success. */
function claimProblem(result: PlayedResult, episodes: readonly SignedEpisode[]): Difference {
  const { first, levels, attempts } = result.seeds;
  const wanted = levels * attempts;
  if (episodes.length !== wanted)
    return `${episodes.length} episodes, and ${levels} levels with ${attempts} attempts have ${wanted}`;
  for (const episode of episodes) {
    const problem = episodeProblem(result, episode);
    if (problem !== undefined) return `${episode.episode_id}: ${problem}`;
  }
  const bySeed = groupBy(episodes, ({ seed }) => seed);
  for (let seed = first; seed < first + levels; seed++) {
    const members = new Set(bySeed.get(seed)?.map(({ member }) => member));
    if (members.size !== attempts)
      return `the level of seed ${seed} has ${members.size} attempts, not ${attempts}`;
  }
  const { success, success_low, success_high, pass_at } = result;
  const claimed = { success, success_low, success_high, ...(pass_at ? { pass_at } : {}) };
  const found = successShares([...bySeed.values()]);
  return canonicalJson(found) === canonicalJson(claimed)
    ? undefined
    : `its episodes have a success of ${sharesText(found)}, and it says ${sharesText(claimed)}`;
}

const sharesText = ({ success, success_low: low, success_high: high, pass_at }: Partial<PlayedResult>) =>
  [success, `(${low} to ${high})`, ...(pass_at ? [JSON.stringify(pass_at)] : [])].join(' ');

function episodeProblem(result: PlayedResult, episode: SignedEpisode): Difference {
  const { environment: limits, seeds } = result;
  const { seed, member, dynamics_seed: luck, turns, env_id } = episode;
  if (env_id !== limits.env_id) return `it was played in ${env_id}, not ${limits.env_id}`;
  if (seed < seeds.first || seed >= seeds.first + seeds.levels)
    return `its seed ${seed} is none from ${seeds.first} to ${seeds.first + seeds.levels - 1}`;
  if (member >= seeds.attempts) return `attempt ${member + 1} of ${seeds.attempts}`;
  const fair = seeds.attempts > 1 ? mixSeed(seed, PURPOSE.dynamics) + member : undefined;
  if (luck !== undefined && luck !== fair) return `its luck has the seed ${luck}, not that of its level`;
  if (limits.program) return undefined;
  if (turns.length > limits.max_turns) return `${turns.length} turns, more than ${limits.max_turns}`;
  let left = limits.max_actions_per_trajectory;
  for (const { actions, sent = actions } of turns) {
    const most = Math.min(left, limits.max_actions_per_turn);
    if (sent.length > most) return `a turn with ${sent.length} actions, where ${most} were allowed`;
    left -= actions.length;
  }
  return undefined;
}

/** All episodes in a random order that authors cannot foresee, or the first so many of them. */
function sampleOf(episodes: readonly SignedEpisode[]): SignedEpisode[] {
  const order = [...episodes];
  const count = Math.min(SAMPLE, order.length);
  for (let i = 0; i < count; i++) {
    const k = randomInt(i, order.length);
    [order[i], order[k]] = [order[k], order[i]];
  }
  return order.slice(0, count);
}
