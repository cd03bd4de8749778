import type { Json, JsonObject } from '../../shared/json.ts';
import { isPenalised, mapActions, parseResponse } from '../../shared/response.ts';
import type { Schemas } from '../client/operations.ts';
import type { SamplingSettings } from '../generation/generation.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import type { PastTurn, Prompt, TurnView } from '../prompts/prompt.ts';
import { promptMessages } from '../prompts/prompt.ts';
import type { Agent, AgentReply, EpisodeView } from './agents/agent.ts';
import { type ContextSettings, EpisodeContext } from './context.ts';
import type { DescribedTag } from './described-tag.ts';
import type { EnvironmentSession } from './environment-session.ts';
import type { Episode, EpisodeSample, Turn } from './episode.ts';
import { mixSeed } from './seeds.ts';
import type { GroupPlan } from './tag.ts';
import type { SampledTokens } from './token-buffer.ts';

/** All that an episode is played with. */
export interface PlaySetting {
  readonly described: DescribedTag;
  readonly prompt: Prompt;
  readonly tokenizer?: Tokenizer;
  readonly agent: Agent;
  readonly context: ContextSettings;
  readonly sampling: Omit<SamplingSettings, 'maxNewTokens' | 'stopTokenIds'>;
  readonly samplingSeed: number;
  readonly newSequence: () => number;
  /** Called between waits; throws to end the episode. */
  readonly check: () => void;
  /** Milliseconds spent waiting are added here. */
  readonly waits: Waits;
}

export interface Waits {
  /** For the agent. */
  agent: number;
  /** For the environment. */
  environment: number;
}

const NO_TOKENS: readonly number[] = [];
const NO_ARRAYS: EpisodeSample = {
  tokenIds: new Int32Array(0),
  mask: new Uint8Array(0),
  logProbs: new Float32Array(0),
  versions: new Int32Array(0),
};

/** Plays one episode to its end, or until the turns or actions run out. */
export async function playEpisode(
  plan: GroupPlan,
  member: number,
  session: EnvironmentSession,
  setting: PlaySetting,
): Promise<Episode> {
  const { described, prompt, agent, waits } = setting;
  const { tag } = described;
  const context =
    prompt.tokens && setting.tokenizer
      ? new EpisodeContext(prompt, prompt.tokens, setting.context, setting.newSequence, id =>
          agent.release(id),
        )
      : undefined;
  const turns: Turn[] = [];
  const past: PastTurn[] = [];
  let actionCount = 0;
  let over = false;
  let success = false;
  let samples: EpisodeSample[] = [];
  try {
    while (!over && turns.length < tag.maxTurns) {
      setting.check();
      const actionsLeft = tag.maxActionsPerTrajectory - actionCount;
      const view = nextView(session.observation, actionsLeft, turns);
      const step = context?.begin(view);
      const asked = performance.now();
      const reply = await agent.respond({
        sequenceId: step?.sequenceId ?? -1,
        append: step?.append ?? NO_TOKENS,
        sampling: {
          ...setting.sampling,
          maxNewTokens: step?.maxNewTokens ?? prompt.task.responseLength,
          stopTokenIds: prompt.tokens?.stopTokenIds ?? NO_TOKENS,
        },
        seed: mixSeed(setting.samplingSeed, plan.groupId, plan.seed, member, turns.length),
        prime: prompt.prime,
        episode: episodeView(plan, member, view, session, setting),
        messages: () => promptMessages(prompt, view, past),
      });
      waits.agent += performance.now() - asked;
      setting.check();

      const text = replyText(reply, setting.tokenizer);
      const rawResponse = reply.rawResponse ?? prompt.prime + text;
      const parsed = parseResponse(rawResponse, prompt.format);
      const mapped = mapActions(parsed.actions, described.actionNames);
      const sent = performance.now();
      const results = await session.act(mapped.slice(0, actionsLeft));
      waits.environment += performance.now() - sent;
      const executed = executedActions(mapped, results);
      const last = results.at(-1);
      actionCount += executed.length;
      const valid = mapped.length - (results.length - executed.length);
      success = last?.info.success === true;
      over =
        last !== undefined &&
        (last.terminated || last.truncated || actionCount >= tag.maxActionsPerTrajectory);
      const placed = context?.accept(sampledTokens(reply, text, prompt, setting.tokenizer), rawResponse);
      turns.push({
        state: view.state,
        actionsLeft,
        actions: executed,
        reward: results.reduce((sum, result) => sum + result.reward, 0),
        penalty: isPenalised(parsed.actions.length, valid) ? tag.formatPenalty : 0,
        info: executed.length > 0 ? (last?.info as JsonObject) : {},
        response: parsed.cleaned,
        rawResponse,
        tokens: placed?.tokens ?? [0, 0],
        sample: placed?.sample ?? 0,
        finishReason: reply.finishReason,
      });
      past.push({ view, response: parsed.cleaned });
    }
  } finally {
    if (context) samples = context.finish();
  }
  const last = samples.at(-1) ?? NO_ARRAYS;
  return {
    episodeId: `${tag.name}/${plan.seed}/${plan.groupId}.${member}`,
    environmentId: tag.environmentId,
    tag: tag.name,
    groupId: plan.groupId,
    member,
    seed: plan.seed,
    server: session.server,
    turns,
    success: over && success,
    terminated: over,
    truncated: over && !success,
    finalState: session.observation,
    ...last,
    ...(samples.length > 1 ? { samples } : {}),
  };
}

/** What a turn's prompt shows after the turns so far. */
export function nextView(state: string, actionsLeft: number, turns: readonly Turn[]): TurnView {
  const last = turns.at(-1);
  return {
    turn: turns.length + 1,
    state,
    actionsLeft,
    lastReward: last?.reward,
    lastInvalid: last !== undefined && last.actions.length === 0,
  };
}

function episodeView(
  plan: GroupPlan,
  member: number,
  view: TurnView,
  session: EnvironmentSession,
  { described: { tag, actionNames }, prompt }: PlaySetting,
): EpisodeView {
  const turnsLeft = tag.maxTurns - view.turn + 1;
  return {
    tag: tag.name,
    groupId: plan.groupId,
    member,
    seed: plan.seed,
    turn: view.turn,
    state: view.state,
    actionsLeft: view.actionsLeft,
    turnsLeft,
    maxActionsPerTurn: tag.maxActionsPerTurn,
    actionNames,
    compose: prompt.compose,
    reference: (policy, count) => session.reference(policy, count, turnsLeft),
  };
}

/**
 * The actions that count as carried out: all but those that the environment did not know, which changed nothing, ended
 * nothing and earned nothing.
 */
function executedActions(actions: readonly Json[], results: readonly Schemas['StepResult'][]): Json[] {
  return results.flatMap((result, i) => (isUnknown(result) ? [] : [actions[i]]));
}

function isUnknown({ info, reward, terminated }: Schemas['StepResult']): boolean {
  return info.action_is_valid === false && info.action_is_effective !== true && reward === 0 && !terminated;
}

function replyText(reply: AgentReply, tokenizer: Tokenizer | undefined): string {
  if (reply.text !== undefined) return reply.text;
  if (!reply.tokenIds || !tokenizer)
    throw new Error('the agent answered without text, and there is no tokenizer');
  return tokenizer.decode(reply.tokenIds, { skipSpecial: true });
}

function sampledTokens(
  reply: AgentReply,
  text: string,
  prompt: Prompt,
  tokenizer: Tokenizer | undefined,
): SampledTokens {
  if (reply.tokenIds) return { ...reply, tokenIds: reply.tokenIds };
  return { tokenIds: [...(tokenizer?.encode(text) ?? []), ...(prompt.tokens?.ending ?? [])] };
}
