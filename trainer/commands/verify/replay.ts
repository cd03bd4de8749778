import type { Json, JsonObject } from '../../../shared/json.ts';
import { withoutImages } from '../../../shared/observation-parts.ts';
import { mapActions, parseResponse } from '../../../shared/response.ts';
import type { TrajectoryRecord, TurnRecord } from '../../../shared/run-folder/run-files.ts';
import type { DescribedTag } from '../../rollout/described-tag.ts';
import { EnvironmentSession } from '../../rollout/environment-session.ts';
import { endOf } from '../../rollout/episode.ts';
import { executedActions } from '../../rollout/play.ts';
import type { TextRunContext } from '../../training/setup/run-context.ts';

/** Episodes that are replayed at once. */
const AT_ONCE = 16;

/** The first thing that differs in an episode, in words; undefined where all agrees. */
export type Difference = string | undefined;

/** The part of a stored episode that is played again and compared. */
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

/** Parties to an episode besides its policy. */
export interface ReplayedParties {
  /** A program played, so that the server kept to the cap on actions. */
  readonly program: boolean;
  /** A hook rewarded the turns, so that rewards differ from the environment's. */
  readonly hook: boolean;
}

/** Plays stored episodes again on servers, and compares what they answer, bit for bit. */
export async function replayEpisodes(
  records: readonly ReplayedRecord[],
  parties: ReplayedParties,
  { servers, tags }: Pick<TextRunContext, 'servers' | 'tags'>,
): Promise<Difference[]> {
  const described = new Map(tags.map(tag => [tag.tag.name, tag]));
  const found = new Array<Difference>(records.length);
  let next = 0;
  const worker = async () => {
    for (let i = next++; i < records.length; i = next++) {
      const tag = described.get(records[i].tag);
      found[i] = tag
        ? await replayed(records[i], parties, tag, servers)
        : `its tag ${records[i].tag} is not among those of the settings`;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return found;
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

/** Compares the actions that were sent with those that the stored response asks for. */
export function checkActions(
  { turns }: TrajectoryRecord,
  { actionNames, jsonActions }: DescribedTag,
  format: Parameters<typeof parseResponse>[1],
): Difference {
  for (const [i, turn] of turns.entries()) {
    const parsed = parseResponse(turn.llm_raw_response, format);
    if (parsed.cleaned !== turn.llm_response) return `turn ${i + 1}: the cleaned response is another one`;
    const asked: readonly Json[] = jsonActions
      ? parsed.actions.map(jsonOr)
      : mapActions(parsed.actions, actionNames);
    const sent = turn.sent ?? turn.actions;
    const wanted = asked.slice(0, turn.actions_left).slice(0, sent.length);
    if (JSON.stringify(wanted) !== JSON.stringify(sent))
      return `turn ${i + 1}: the response asks for ${JSON.stringify(wanted)}, and ${JSON.stringify(sent)} was done`;
  }
  return undefined;
}

function jsonOr(action: string): Json {
  try {
    return JSON.parse(action) as Json;
  } catch {
    return action;
  }
}
