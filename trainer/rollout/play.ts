import type { Json, JsonObject } from '../../shared/json.ts';
import { isPenalized, mapActions, parseResponse } from '../../shared/response.ts';
import type { Schemas } from '../client/operations.ts';
import type { SamplingSettings } from '../generation/generation.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import type { PastTurn, Prompt, TurnView } from '../prompts/prompt.ts';
import { promptMessages } from '../prompts/prompt.ts';
import type { Agent, AgentReply, EpisodeView } from './agents/agent.ts';
import { type ContextSettings, EpisodeContext } from './context.ts';
import type { DescribedTag } from './described-tag.ts';
import type { EnvironmentSession } from './environment-session.ts';
import { type Episode, type EpisodeSample, sumComponents, type Truncation, type Turn } from './episode.ts';
import { mixSeed } from './seeds.ts';
import type { GroupPlan } from './tag.ts';
import type { SampledTokens } from './token-buffer.ts';

/** All that an episode is played with. */
export interface PlayContext {
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
  readonly waits: WaitTimes;
}

export interface WaitTimes {
  /** For the agent. */
  agent: number;
  /** For the environment. */
  environment: number;
}

const NO_TOKENS: readonly number[] = [];
const NO_ARRAYS: EpisodeSample = {
  tokenIds: new Int32Array(0),
  lossMask: new Uint8Array(0),
  logProbs: new Float32Array(0),
  versions: new Int32Array(0),
};

/** Plays one episode to its end, or until the turns or actions run out. */
export async function playEpisode(
  plan: GroupPlan,
  member: number,
  session: EnvironmentSession,
  setting: PlayContext,
): Promise<Episode> {
  const { described, prompt, agent, tokenizer } = setting;
  const context =
    prompt.tokens && tokenizer
      ? new EpisodeContext(prompt, prompt.tokens, setting.context, setting.newSequence, id =>
          agent.release(id),
        )
      : undefined;
  const play = new Play(plan, member, session, setting, context);
  let samples: EpisodeSample[] = [];
  let following: Int32Array | undefined;
  try {
    while (!play.over && play.turns.length < described.tag.maxTurns) {
      setting.check();
      await play.turn();
    }
    following = play.following();
  } finally {
    if (context) samples = context.finish();
  }
  return play.episode(samples, following);
}

/** An episode while it is played. */
class Play {
  readonly turns: Turn[] = [];
  over = false;
  readonly #plan: GroupPlan;
  readonly #member: number;
  readonly #session: EnvironmentSession;
  readonly #setting: PlayContext;
  /** Absent where nobody wants tokens. */
  readonly #context: EpisodeContext | undefined;
  readonly #past: PastTurn[] = [];
  #actionCount = 0;
  #success = false;
  #truncation: Truncation | undefined;

  constructor(
    plan: GroupPlan,
    member: number,
    session: EnvironmentSession,
    setting: PlayContext,
    context: EpisodeContext | undefined,
  ) {
    this.#plan = plan;
    this.#member = member;
    this.#session = session;
    this.#setting = setting;
    this.#context = context;
  }

  /** Asks the agent, sends what it wants done, and records both. */
  async turn(): Promise<void> {
    const { described, prompt, tokenizer, waits } = this.#setting;
    const { tag } = described;
    const actionsLeft = tag.maxActionsPerTrajectory - this.#actionCount;
    const view = nextView(this.#session.observation, actionsLeft, this.turns);
    const { structured } = this.#session;
    const reply = await this.#ask(view);
    this.#setting.check();
    const text = replyText(reply, tokenizer);
    const rawResponse = reply.rawResponse ?? prompt.prime + text;
    const parsed = parseResponse(rawResponse, prompt.format);
    const mapped = described.jsonActions
      ? parsed.actions.map(readJson)
      : mapActions(parsed.actions, described.actionNames);
    const sent = performance.now();
    const results = await this.#session.act(mapped.slice(0, actionsLeft));
    waits.environment += performance.now() - sent;
    const executed = executedActions(mapped, results);
    const last = results.at(-1);
    this.#actionCount += executed.length;
    const valid = mapped.length - (results.length - executed.length);
    this.#success = last?.info.success === true;
    this.over =
      last !== undefined &&
      (last.terminated || last.truncated || this.#actionCount >= tag.maxActionsPerTrajectory);
    if (this.over && !last?.terminated) this.#truncation = last?.truncated ? 'environment' : 'max_actions';
    const rewards = sumComponents(results.map(({ info }) => info));
    const placed = this.#context?.accept(sampledTokens(reply, text, prompt, tokenizer), rawResponse);
    this.turns.push({
      state: view.state,
      ...(structured === undefined ? {} : { structured }),
      actionsLeft,
      actions: executed,
      reward: results.reduce((sum, result) => sum + result.reward, 0),
      ...(rewards ? { rewards } : {}),
      penalty: isPenalized(parsed.actions.length, valid) ? tag.formatPenalty : 0,
      info: executed.length > 0 ? (last?.info as JsonObject) : {},
      response: parsed.cleaned,
      rawResponse,
      tokens: placed?.tokens ?? [0, 0],
      sample: placed?.sample ?? 0,
      finishReason: reply.finishReason,
      ...(reply.exploratory ? { exploratory: true } : {}),
    });
    this.#past.push({ view, response: parsed.cleaned });
  }

  async #ask(view: TurnView): Promise<AgentReply> {
    const { prompt, agent, waits, sampling, samplingSeed } = this.#setting;
    const { groupId, seed } = this.#plan;
    const step = this.#context?.begin(view);
    const asked = performance.now();
    const reply = await agent.respond({
      sequenceId: step?.sequenceId ?? -1,
      append: step?.append ?? NO_TOKENS,
      sampling: {
        ...sampling,
        maxNewTokens: step?.maxNewTokens ?? prompt.task.responseLength,
        stopTokenIds: prompt.tokens?.stopTokenIds ?? NO_TOKENS,
      },
      seed: mixSeed(samplingSeed, groupId, seed, this.#member, this.turns.length),
      prime: prompt.prime,
      episode: episodeView(this.#plan, this.#member, view, this.#session, this.#setting),
      messages: () => promptMessages(prompt, view, this.#past),
    });
    waits.agent += performance.now() - asked;
    return reply;
  }

  /**
   * After the last turn: what the policy would read next, as if the caps left it one more action and turn; undefined where the
   * episode ended by its rules, and where it is not one sequence that has room for it.
   */
  following(): Int32Array | undefined {
    const { tag } = this.#setting.described;
    if (!this.over) this.#truncation = 'max_turns';
    if (this.#truncation === undefined) return undefined;
    const actionsLeft = Math.max(1, tag.maxActionsPerTrajectory - this.#actionCount);
    return this.#context?.following({
      ...nextView(this.#session.observation, actionsLeft, this.turns),
      turn: Math.min(this.turns.length + 1, tag.maxTurns),
    });
  }

  /** The record of the episode. */
  episode(samples: readonly EpisodeSample[], following?: Int32Array): Episode {
    const { tag } = this.#setting.described;
    const { seed, groupId } = this.#plan;
    const { structured, dynamicsSeed, levelId } = this.#session;
    return {
      episodeId: `${tag.name}/${seed}/${groupId}.${this.#member}`,
      environmentId: tag.environmentId,
      tag: tag.name,
      groupId,
      member: this.#member,
      seed,
      ...(dynamicsSeed === undefined ? {} : { dynamicsSeed }),
      server: this.#session.server,
      ...(levelId === undefined ? {} : { levelId }),
      turns: this.turns,
      success: this.over && this.#success,
      terminated: this.over,
      ...(this.#truncation ? { truncation: this.#truncation } : {}),
      ...(following ? { following } : {}),
      unsuccessful: this.over && !this.#success,
      finalState: this.#session.observation,
      ...(structured === undefined ? {} : { finalStructured: structured }),
      ...(samples.at(-1) ?? NO_ARRAYS),
      ...(samples.length > 1 ? { samples } : {}),
    };
  }
}

/** An action that is JSON; text that is none goes to the environment as it is, which finds it invalid. */
function readJson(action: string): Json {
  try {
    return JSON.parse(action) as Json;
  } catch {
    return action;
  }
}

/** View of a turn's prompt after the turns so far. */
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
  { described: { tag, actionNames, jsonActions, description }, prompt }: PlayContext,
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
    exampleActions: description.exampleActions,
    jsonActions,
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
