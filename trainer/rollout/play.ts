import { atEnd } from '../../shared/closing.ts';
import { type Json, type JsonObject, parseJson } from '../../shared/json.ts';
import { type ActionNames, isPenalized, mapActions, parseResponse } from '../../shared/response.ts';
import { sumComponents } from '../../shared/step-info.ts';
import type { Schemas } from '../client/operations.ts';
import type { SamplingSettings } from '../generation/generation.ts';
import { allowedTokens, type SparseGrammar } from '../generation/grammar.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { type PastTurn, type Prompt, promptMessages, spelledJson, type TurnView } from '../prompts/prompt.ts';
import type { Agent, AgentReply, EpisodeView } from './agents/agent.ts';
import { type ContextSettings, EpisodeContext } from './context.ts';
import { type DescribedTag, playableActions } from './described-tag.ts';
import { type EnvironmentSession, ReplayDiverged } from './environment-session.ts';
import {
  type Episode,
  type EpisodePrefix,
  type EpisodeSample,
  endOf,
  type PlayedTurn,
  type Truncation,
  type Turn,
  withoutTurns,
} from './episode.ts';
import { mixSeed, PURPOSE } from './seeds.ts';
import type { GroupPlan } from './tag.ts';
import type { PlayTally } from './tally.ts';
import type { SampledTokens } from './token-buffer.ts';

/** Settings and services for playing an episode. */
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
  /** Receives the costs of playing. */
  readonly tally: PlayTally;
}

const NO_TOKENS: readonly number[] = [];
const NO_ARRAYS: EpisodeSample = {
  tokenIds: new Int32Array(0),
  lossMask: new Uint8Array(0),
  logProbs: new Float32Array(0),
  versions: new Int32Array(0),
};

/** Plays one episode to its end, or until the turns or actions run out. */
export function playEpisode(
  plan: GroupPlan,
  member: number,
  session: EnvironmentSession,
  setting: PlayContext,
): Promise<Episode> {
  return Play.open(plan, member, session, setting).toEnd();
}

/** An episode while it is played. */
export class Play {
  readonly turns: Turn[] = [];
  over = false;
  /** Position in the group. */
  member: number;
  /** Node of the next turns, in a tree. */
  node: string | undefined;
  readonly session: EnvironmentSession;
  readonly #plan: GroupPlan;
  #samplingSeed: number;
  readonly #nodes: string[] = [];
  #prefix: EpisodePrefix | undefined;
  /** Mean of −log p over the first sampled tokens of each turn, in nats; 0 if the agent returns none. */
  readonly #surprisals: number[] = [];
  readonly #setting: PlayContext;
  /** Absent where no tokens are needed. */
  readonly #context: EpisodeContext | undefined;
  readonly #past: PastTurn[] = [];
  #actionCount = 0;
  #success = false;
  #truncation: Truncation | undefined;
  /** Info of the last step. */
  #lastInfo: JsonObject | undefined;

  private constructor(
    plan: GroupPlan,
    member: number,
    session: EnvironmentSession,
    setting: PlayContext,
    context: EpisodeContext | undefined,
  ) {
    this.#plan = plan;
    this.member = member;
    this.session = session;
    this.#setting = setting;
    this.#context = context;
    this.#samplingSeed = setting.samplingSeed;
  }

  static open(plan: GroupPlan, member: number, session: EnvironmentSession, setting: PlayContext): Play {
    const { prompt, tokenizer, agent } = setting;
    const context =
      prompt.tokens && tokenizer
        ? new EpisodeContext(prompt, prompt.tokens, setting.context, setting.newSequence, id =>
            agent.release(id),
          )
        : undefined;
    return new Play(plan, member, session, setting, context);
  }

  /** Another turn may be played. */
  get canGoOn(): boolean {
    return !this.over && this.turns.length < this.#setting.described.tag.maxTurns;
  }

  /**
   * A separate episode with the same history; between turns.
   * @param session in the same state as this one's
   * @param path separates its draws from those of all others that share the history
   */
  fork(member: number, session: EnvironmentSession, path: readonly number[]): Play {
    const { samplingSeed } = this.#setting;
    const fork = new Play(this.#plan, member, session, this.#setting, this.#context?.fork());
    fork.#samplingSeed = mixSeed(samplingSeed, PURPOSE.branch, this.#plan.groupId, ...path);
    fork.turns.push(...this.turns);
    fork.#past.push(...this.#past);
    fork.#nodes.push(...this.#nodes);
    fork.#surprisals.push(...this.#surprisals);
    fork.#prefix = this.#prefix;
    fork.#actionCount = this.#actionCount;
    fork.#success = this.#success;
    this.#setting.tally.prefillTokens += fork.#context?.unsentTokens ?? 0;
    return fork;
  }

  /**
   * Takes over turns of an earlier episode: the actions are carried out again, nothing is sampled.
   * @throws ReplayDiverged where an observation differs
   */
  async takeOver(played: readonly PlayedTurn[], kind: EpisodePrefix['kind']): Promise<void> {
    const { described, tally } = this.#setting;
    for (const { turn, sent, tokenIds, after } of played) {
      this.#setting.check();
      const actionsLeft = described.tag.maxActionsPerTrajectory - this.#actionCount;
      const view = nextView(this.session.observation, actionsLeft, this.turns);
      this.#context?.begin(view);
      const results = await this.session.act(sent);
      tally.envSteps += results.length;
      tally.replayedSteps += results.length;
      const placed = this.#context?.accept({ tokenIds }, turn.rawResponse);
      if (this.session.observation !== after || results.length !== sent.length)
        throw new ReplayDiverged(this.session.server, this.session.spec, this.session.actions.length);
      this.turns.push({ ...turn, tokens: placed?.tokens ?? [0, 0], sample: placed?.sample ?? 0 });
      this.#past.push({ view, response: turn.response });
      this.#actionCount += turn.actions.length;
    }
    this.#context?.unsend();
    this.#prefix = { turns: played.length, kind };
  }

  /** Mean of −log p over the first tokens of the last turn and of the first, in nats. */
  get surprisals(): { readonly first: number; readonly last: number } {
    return { first: this.#surprisals[0] ?? 0, last: this.#surprisals.at(-1) ?? 0 };
  }

  /** Releases its token sequence if the episode is abandoned. */
  release(): void {
    this.#context?.finish();
  }

  /** Plays the turns that are left. */
  async toEnd(): Promise<Episode> {
    using _tokens = atEnd(() => this.release());
    while (this.canGoOn) {
      this.#setting.check();
      await this.turn();
    }
    return this.end();
  }

  /** Ends the episode and returns its record. */
  end(): Episode {
    const following = this.following();
    return this.#episode(this.#context?.finish() ?? [], following);
  }

  /** Asks the agent, carries out its actions, and records both. */
  async turn(): Promise<void> {
    const { described, prompt, tokenizer, tally } = this.#setting;
    const { tag } = described;
    const actionsLeft = tag.maxActionsPerTrajectory - this.#actionCount;
    const view = nextView(this.session.observation, actionsLeft, this.turns);
    const { structured, stateKey } = this.session;
    const { validActions: listed = [] } = this.session;
    const { actionSchema } = described.description;
    const validActions = actionSchema ? listed.map(action => spelledJson(action, actionSchema)) : listed;
    const { reply, grammar } = await this.#ask(view, validActions);
    this.#setting.check();
    const text = replyText(reply, tokenizer);
    const rawResponse = reply.rawResponse ?? prompt.prime + text;
    const parsed = parseResponse(rawResponse, prompt.format);
    const mapped = described.jsonActions
      ? parsed.actions.map(readJson)
      : mapActions(parsed.actions, described.actionNames);
    const sent = performance.now();
    const results = await this.session.act(mapped.slice(0, actionsLeft));
    tally.environmentMs += performance.now() - sent;
    tally.envSteps += results.length;
    const executed = executedActions(mapped, results);
    const { between } = this.session;
    const last = results.at(-1);
    this.#actionCount += executed.length;
    const valid = mapped.length - (results.length - executed.length);
    this.#success = last?.info.success === true;
    this.#lastInfo = last?.info as JsonObject | undefined;
    this.over =
      last !== undefined &&
      (last.terminated || last.truncated || this.#actionCount >= tag.maxActionsPerTrajectory);
    if (this.over && !last?.terminated) this.#truncation = last?.truncated ? 'environment' : 'max_actions';
    const rewards = sumComponents(results.map(({ info }) => info));
    const written = grammar && !reply.tokenIds;
    const held = written ? heldTokens(parsed.actions, validActions, prompt, grammar) : undefined;
    const sampled = held ?? sampledTokens(reply, text, prompt, tokenizer);
    const placed = this.#context?.accept(
      described.constrained ? { allowed: [], ...sampled } : sampled,
      rawResponse,
    );
    this.turns.push({
      state: view.state,
      ...(structured === undefined ? {} : { structured }),
      ...(structured !== undefined && between.length === executed.length - 1 && between.length > 0
        ? { between }
        : {}),
      actionsLeft,
      actions: executed,
      ...(executed.length === results.length ? {} : { sent: mapped.slice(0, results.length) }),
      ...(stateKey === undefined ? {} : { stateKey }),
      ...(described.actionNames ? { actionNames: namesOf(executed, described.actionNames) } : {}),
      reward: results.reduce((sum, result) => sum + result.reward, 0),
      ...(rewards ? { rewards } : {}),
      penalty: isPenalized(parsed.actions.length, valid) ? tag.formatPenalty : 0,
      info: executed.length > 0 ? (last?.info as JsonObject) : {},
      response: parsed.cleaned,
      rawResponse,
      tokens: placed?.tokens ?? [0, 0],
      sample: placed?.sample ?? 0,
      finishReason: reply.finishReason,
      ...(reply.exploratory ? { exploratory: true } : written && !held ? { exploratory: 'not_allowed' } : {}),
    });
    this.#past.push({ view, response: parsed.cleaned });
    this.#surprisals.push(meanSurprisal(reply.logProbs, SURPRISAL_TOKENS));
    if (this.node !== undefined) this.#nodes.push(this.node);
    tally.sampledTokens += placed ? placed.tokens[1] - placed.tokens[0] : 0;
  }

  async #ask(
    view: TurnView,
    validActions: readonly string[],
  ): Promise<{ readonly reply: AgentReply; readonly grammar?: SparseGrammar }> {
    const { described, prompt, agent, tally, sampling } = this.#setting;
    const { groupId, seed } = this.#plan;
    const step = this.#context?.begin(view);
    if (step?.isCut) tally.cutObservations++;
    const isHeld = described.constrained && validActions.length > 0;
    const grammar = isHeld ? prompt.tokens?.stateGrammar(validActions) : undefined;
    const asked = performance.now();
    const reply = await agent.respond({
      sequenceId: step?.sequenceId ?? -1,
      append: step?.append ?? NO_TOKENS,
      sampling: {
        ...sampling,
        maxNewTokens: step?.maxNewTokens ?? prompt.task.responseLength,
        stopTokenIds: prompt.tokens?.stopTokenIds ?? NO_TOKENS,
      },
      seed: mixSeed(this.#samplingSeed, groupId, seed, this.member, this.turns.length),
      ...(grammar ? { grammar } : {}),
      prime: prompt.prime,
      episode: {
        ...episodeView(this.#plan, this.member, view, this.session, this.#setting),
        validActions,
      },
      messages: () => promptMessages(prompt, view, this.#past),
    });
    tally.agentMs += performance.now() - asked;
    return { reply, grammar };
  }

  /**
   * Tokens that the policy would read after the last turn, as if the caps allowed one more action and turn; undefined
   * where the episode ended by its rules, or is not a single sequence with room for them.
   */
  following(): Int32Array | undefined {
    const { tag } = this.#setting.described;
    if (!this.over) this.#truncation = 'max_turns';
    if (this.#truncation === undefined) return undefined;
    const actionsLeft = Math.max(1, tag.maxActionsPerTrajectory - this.#actionCount);
    return this.#context?.following({
      ...nextView(this.session.observation, actionsLeft, this.turns),
      turn: Math.min(this.turns.length + 1, tag.maxTurns),
    });
  }

  #episode(samples: readonly EpisodeSample[], following?: Int32Array): Episode {
    const { tag } = this.#setting.described;
    const { seed, groupId } = this.#plan;
    const { structured, dynamicsSeed, levelId, reseeds, stateKey } = this.session;
    const endedBy = endOf(this.#lastInfo, this.#truncation);
    const episode: Episode = {
      episodeId: `${tag.name}/${seed}/${groupId}.${this.member}`,
      environmentId: tag.environmentId,
      tag: tag.name,
      groupId,
      member: this.member,
      seed,
      ...(dynamicsSeed === undefined ? {} : { dynamicsSeed }),
      ...(reseeds.length > 0 ? { reseeds } : {}),
      ...(this.node === undefined ? {} : { nodes: this.#nodes }),
      ...(this.#prefix ? { prefix: this.#prefix } : {}),
      server: this.session.server,
      ...(levelId === undefined ? {} : { levelId }),
      turns: this.turns,
      success: this.over && this.#success,
      terminated: this.over,
      ...(this.#truncation ? { truncation: this.#truncation } : {}),
      ...(endedBy === undefined ? {} : { endedBy }),
      ...(following ? { following } : {}),
      finalState: this.session.observation,
      ...(structured === undefined ? {} : { finalStructured: structured }),
      ...(stateKey === undefined ? {} : { finalStateKey: stateKey }),
      ...(samples.at(-1) ?? NO_ARRAYS),
      ...(samples.length > 1 ? { samples } : {}),
    };
    const prefix = this.#prefix?.turns ?? 0;
    return prefix === 0 ? episode : withoutTurns(episode, turn => turn < prefix);
  }
}

/** Tokens of a turn that its surprisal averages. */
const SURPRISAL_TOKENS = 20;

function meanSurprisal(logProbs: ArrayLike<number> | undefined, most: number): number {
  const count = Math.min(most, logProbs?.length ?? 0);
  let sum = 0;
  for (let i = 0; i < count; i++) sum -= logProbs![i];
  return count === 0 ? 0 : sum / count;
}

/** An action as JSON; text that is not JSON goes to the environment unchanged, which finds it invalid. */
export function readJson(action: string): Json {
  const value = parseJson(action);
  return value === undefined ? action : (value as Json);
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
  { described, prompt }: PlayContext,
): EpisodeView {
  const { tag, actionNames, jsonActions } = described;
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
    exampleActions: playableActions(described),
    jsonActions,
    compose: prompt.compose,
    reference: (policy, count) => session.reference(policy, count, turnsLeft),
  };
}

/**
 * The executed actions: all but those that the environment did not know, which changed nothing, ended nothing and
 * earned nothing.
 */
export function executedActions(actions: readonly Json[], results: readonly Schemas['StepResult'][]): Json[] {
  return results.flatMap((result, i) => (isUnknown(result) ? [] : [actions[i]]));
}

/** Names of actions by id; text stays as it is. */
const namesOf = (actions: readonly Json[], { names, start }: ActionNames): string[] =>
  actions.map(action => names[Number(action) - start] ?? String(action));

function isUnknown({ info, reward, terminated }: Schemas['StepResult']): boolean {
  return info.action_is_valid === false && info.action_is_effective !== true && reward === 0 && !terminated;
}

function replyText(reply: AgentReply, tokenizer: Tokenizer | undefined): string {
  if (reply.text !== undefined) return reply.text;
  if (!reply.tokenIds || !tokenizer)
    throw new Error('the agent answered without text, and there is no tokenizer');
  return tokenizer.decode(reply.tokenIds, { skipSpecial: true });
}

/** A written response as the grammar of its state spells it, so that it can be learned under the mask that sampling takes. */
function heldTokens(
  actions: readonly string[],
  validActions: readonly string[],
  { tokens }: Prompt,
  grammar: SparseGrammar,
): SampledTokens | undefined {
  const action = actions.length === 1 ? validActions.find(each => each.trim() === actions[0]) : undefined;
  const spelled = action === undefined ? undefined : tokens?.stateResponse(action);
  if (!spelled) return undefined;
  const tokenIds = Int32Array.from(spelled);
  return { tokenIds, allowed: allowedTokens(grammar, tokenIds) };
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
