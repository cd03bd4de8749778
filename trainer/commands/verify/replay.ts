import { randomInt } from 'node:crypto';
import { closing } from '../../../shared/closing.ts';
import { orAborted } from '../../../shared/http/retry.ts';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { withoutImages } from '../../../shared/observation-parts.ts';
import { mapActions, parseResponse } from '../../../shared/response.ts';
import type { TrajectoryRecord, TurnRecord } from '../../../shared/run-folder/run-files.ts';
import {
  canonicalJson,
  type PlayedResult,
  type ReplayVerdict,
  type SignedEpisode,
} from '../../../shared/run-folder/signed-result.ts';
import { mapConcurrently } from '../../../shared/scheduling/queues.ts';
import type { EnvServerSettings } from '../../client/server.ts';
import { openServers } from '../../client/servers.ts';
import { type DescribedTag, describeTags } from '../../rollout/described-tag.ts';
import { EnvironmentSession } from '../../rollout/environment-session.ts';
import { endOf } from '../../rollout/episode.ts';
import { executedActions, readJson } from '../../rollout/play.ts';
import { mixSeed, PURPOSE } from '../../rollout/seeds.ts';
import type { Tag } from '../../rollout/tag.ts';
import type { TextRunContext } from '../../training/setup/run-context.ts';
import { successShares } from '../evaluate/evaluation.ts';

/** Episodes replayed at once. */
const AT_ONCE = 16;

/** The first difference in an episode, in words; undefined where everything agrees. */
export type Difference = string | undefined;

/** The part of a stored episode that is replayed and compared. */
export type ReplayedRecord = Pick<
  TrajectoryRecord,
  | 'episode_id'
  | 'tag'
  | 'seed'
  | 'dynamics_seed'
  | 'reseeds'
  | 'success'
  | 'terminated'
  | 'truncation'
  | 'ended_by'
  | 'final_state'
> & { readonly turns: readonly Pick<TurnRecord, 'state' | 'actions' | 'sent' | 'reward'>[] };

/** Participants of an episode besides its policy. */
export interface ReplayedParties {
  /** A program played, so that the server enforced the cap on actions. */
  readonly program: boolean;
  /** A hook rewarded the turns, so that rewards differ from the environment's. */
  readonly hook: boolean;
}

/** Replays stored episodes on servers, and compares the answers bit for bit. */
export async function replayEpisodes(
  records: readonly ReplayedRecord[],
  parties: ReplayedParties,
  { servers, tags }: Pick<TextRunContext, 'servers' | 'tags'>,
): Promise<Difference[]> {
  const described = new Map(tags.map(tag => [tag.tag.name, tag]));
  return mapConcurrently(records, AT_ONCE, async record => {
    const tag = described.get(record.tag);
    return tag
      ? replayed(record, parties, tag, servers)
      : `its tag ${record.tag} is not among those of the settings`;
  });
}

async function replayed(
  record: ReplayedRecord,
  { program, hook }: ReplayedParties,
  { tag, seedable, copyable }: DescribedTag,
  servers: TextRunContext['servers'],
): Promise<Difference> {
  if (!seedable) return `${tag.environmentId} takes no seed, so nothing can be played again`;
  let [session] = await EnvironmentSession.openGroup(
    servers,
    {
      environmentId: tag.environmentId,
      tag: tag.name,
      config: tag.config,
      options: tag.options,
      seed: record.seed,
      dynamicsSeed: record.dynamics_seed,
      groupName: `verify/${record.episode_id}`.slice(0, 128),
      copyable,
      ...(program
        ? { wrappers: [{ name: 'time_limit', options: { max_steps: tag.maxActionsPerTrajectory } }] }
        : {}),
    },
    1,
  );
  const reseeds = new Map(record.reseeds?.map(({ step, dynamics_seed }) => [step, dynamics_seed]));
  let [done, executed] = [0, 0];
  try {
    let info: JsonObject | undefined;
    let over = false;
    for (const [i, turn] of record.turns.entries()) {
      const what = `turn ${i + 1}`;
      if (withoutImages(session.observation) !== turn.state)
        return `${what}: the state before it is another one`;
      const fresh = reseeds.get(done);
      if (fresh !== undefined) {
        const [branch] = await session.branch(1, fresh);
        await session.close();
        session = branch;
      }
      const sent = turn.sent ?? turn.actions;
      const results = await session.act(sent);
      done += results.length;
      if (results.length !== sent.length)
        return `${what}: ${results.length} of ${sent.length} actions were carried out`;
      const reward = results.reduce((sum, result) => sum + result.reward, 0);
      if (!hook && reward !== turn.reward) return `${what}: the reward is ${reward}, not ${turn.reward}`;
      const known = executedActions(sent, results).length;
      if (!program && known !== turn.actions.length)
        return `${what}: ${known} actions were known to the environment, not ${turn.actions.length}`;
      executed += known;
      const last = results.at(-1);
      info = last?.info as JsonObject | undefined;
      over =
        last !== undefined && (last.terminated || last.truncated || executed >= tag.maxActionsPerTrajectory);
    }
    if (record.final_state !== undefined && withoutImages(session.observation) !== record.final_state)
      return 'the state after the last turn is another one';
    if (record.terminated && !over) return 'it had not ended after its last turn';
    const success = record.terminated && info?.success === true;
    if (success !== record.success) return `its success is ${success}, not ${record.success}`;
    // Records of earlier versions have no end.
    const end = record.ended_by === undefined ? undefined : endOf(info, record.truncation);
    if (end !== record.ended_by) return `its end is ${end}, not ${record.ended_by}`;
    return undefined;
  } finally {
    await session.close();
  }
}

/** Compares the sent actions with those in the stored response. */
export function checkActions(
  { turns }: TrajectoryRecord,
  { actionNames, jsonActions }: DescribedTag,
  format: Parameters<typeof parseResponse>[1],
): Difference {
  for (const [i, turn] of turns.entries()) {
    const parsed = parseResponse(turn.llm_raw_response, format);
    if (parsed.cleaned !== turn.llm_response) return `turn ${i + 1}: the cleaned response is another one`;
    const asked: readonly Json[] = jsonActions
      ? parsed.actions.map(readJson)
      : mapActions(parsed.actions, actionNames);
    const sent = turn.sent ?? turn.actions;
    const wanted = asked.slice(0, turn.actions_left).slice(0, sent.length);
    if (JSON.stringify(wanted) !== JSON.stringify(sent))
      return `turn ${i + 1}: the response asks for ${JSON.stringify(wanted)}, and ${JSON.stringify(sent)} was done`;
  }
  return undefined;
}

/** Most episodes of a result that are replayed; of more, this many at random. */
const SAMPLE = 256;
/** Longest wait for an unreachable server. */
const PATIENCE_MS = 5000;

/**
 * Checks a result against its episodes, and replays them.
 * @param server must not be the author's choice
 * @param signal ends it early
 * @throws Error where the server is unreachable, does not have the environment, or does not answer in time
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
  await using servers = closing(openServers([{ ...server, retry: { patienceMs: PATIENCE_MS } }]));
  const parties = { program: environment.program, hook: false };
  const replay = async () =>
    replayEpisodes(sample, parties, { servers, tags: await describeTags(servers, [tag]) });
  const differences = await orAborted(replay(), signal);
  const i = differences.findIndex(difference => difference !== undefined);
  return i === -1 ? { replayed: sample.length } : { differs: `${sample[i].episode_id}: ${differences[i]}` };
}

/**
 * The difference between a result and its own episodes: other levels or randomness, too many turns, another success.
 */
function claimProblem(result: PlayedResult, episodes: readonly SignedEpisode[]): Difference {
  const { first, levels, attempts } = result.seeds;
  const wanted = levels * attempts;
  if (episodes.length !== wanted)
    return `${episodes.length} episodes, and ${levels} levels with ${attempts} attempts have ${wanted}`;
  for (const episode of episodes) {
    const problem = episodeProblem(result, episode);
    if (problem !== undefined) return `${episode.episode_id}: ${problem}`;
  }
  const bySeed = Map.groupBy(episodes, ({ seed }) => seed);
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

/** All episodes in a random order that authors cannot predict, or the first so many of them. */
function sampleOf(episodes: readonly SignedEpisode[]): SignedEpisode[] {
  const order = [...episodes];
  const count = Math.min(SAMPLE, order.length);
  for (let i = 0; i < count; i++) {
    const k = randomInt(i, order.length);
    [order[i], order[k]] = [order[k], order[i]];
  }
  return order.slice(0, count);
}
