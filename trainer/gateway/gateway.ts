import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { atEnd, onAbort } from '../../shared/closing.ts';
import type { Json, JsonObject } from '../../shared/json.ts';
import { type SlotGroup, Slots } from '../../shared/scheduling/queues.ts';
import { sumComponents } from '../../shared/step-info.ts';
import type { Schemas } from '../client/operations.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import type { EnvironmentSession } from '../rollout/environment-session.ts';
import { type Episode, endOf, samplesOf, type Turn } from '../rollout/episode.ts';
import { type EpisodeAgent, type EpisodeSetting, ProgramFault } from '../rollout/episode-agent.ts';
import { mixSeed } from '../rollout/seeds.ts';
import type { SessionAddress } from '../rollout/session-requests.ts';
import type { GroupPlan } from '../rollout/tag.ts';
import { PromptEncoder } from '../serve/openai/prompt-encoder.ts';
import { createGatewayApp, type OpenRollout } from './app.ts';
import {
  type GatewayPolicy,
  type MergedCalls,
  type ModelCall,
  mergeCalls,
  type ProgramTask,
  Rollout,
  type RolloutLimits,
  RolloutModel,
  type RolloutSampling,
} from './rollout.ts';
import { type Assignment, Program, type WorkerSettings, WorkQueue } from './work-queue.ts';

/** Command and limits of programs. */
export interface GatewaySettings extends RolloutLimits, WorkerSettings {
  /** Programs at once where one is started per episode. */
  readonly processes: number;
  /** Bearer token of verifiers; undefined: rewards are the environment server's. */
  readonly verifierKey: string | undefined;
}

/** Settings of one attempt at an episode. */
export interface Attempt {
  readonly plan: GroupPlan;
  readonly member: number;
  readonly session: SessionAddress;
  readonly task: ProgramTask;
  readonly sampling: RolloutSampling;
  readonly signal?: AbortSignal;
}

/** Lets programs that speak OpenAI's API play episodes with a policy. */
export class Gateway {
  readonly settings: GatewaySettings;
  readonly #policy: GatewayPolicy;
  readonly #tokenizer: Tokenizer;
  readonly #encoder: PromptEncoder;
  readonly #app: FastifyInstance;
  readonly #rollouts = new Map<string, OpenRollout>();
  readonly #queue = new WorkQueue();
  readonly #programs = new Set<Program>();
  readonly #slots: SlotGroup;

  private constructor(settings: GatewaySettings, policy: GatewayPolicy, tokenizer: Tokenizer) {
    this.settings = settings;
    this.#slots = new Slots({ most: settings.processes }).group('');
    this.#policy = policy;
    this.#tokenizer = tokenizer;
    this.#encoder = new PromptEncoder(tokenizer);
    const { verifierKey } = settings;
    this.#app = createGatewayApp({ rollouts: this.#rollouts, queue: this.#queue, verifierKey });
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#app.server.address() as AddressInfo).port}`;
  }

  /** Listens on a free port of the loopback address. */
  static async open(
    settings: GatewaySettings,
    policy: GatewayPolicy,
    tokenizer: Tokenizer,
  ): Promise<Gateway> {
    const gateway = new Gateway(settings, policy, tokenizer);
    await gateway.#app.listen({ host: '127.0.0.1', port: 0 });
    gateway.#queue.start(settings, { RAGEN_GATEWAY_URL: gateway.url });
    return gateway;
  }

  /**
   * Lets a program play a session once.
   * @returns the rollout when the program is done
   * @throws ProgramFault for a program that crashes, hangs or floods; the signal's reason
   */
  async play({ plan, member, session, task, sampling, signal }: Attempt): Promise<Rollout> {
    const rollout = new Rollout(plan, member, session, task, this.settings);
    const model = new RolloutModel(this.#policy, this.#tokenizer, this.#encoder, rollout, sampling);
    this.#rollouts.set(rollout.id, { rollout, model });
    const stop = () => rollout.end(new ProgramFault('the run gave the episode up'));
    using _abort = onAbort(signal, stop);
    try {
      await (this.settings.workers > 0 ? this.#byWorker(rollout) : this.#byProgram(rollout));
      return rollout;
    } finally {
      rollout.end();
      this.#rollouts.delete(rollout.id);
      model.close();
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#queue.close(), ...[...this.#programs].map(program => program.stop())]);
    await this.#app.close();
    await this.#encoder.close();
  }

  async #byProgram(rollout: Rollout): Promise<void> {
    await this.#slots.take();
    const program = new Program(this.settings.command, this.#assignment(rollout));
    this.#programs.add(program);
    program.ended.then(
      () => rollout.end(),
      error => rollout.end(error as ProgramFault),
    );
    try {
      await this.#within(rollout, program);
    } finally {
      await program.stop();
      this.#programs.delete(program);
      this.#slots.release();
    }
  }

  async #byWorker(rollout: Rollout): Promise<void> {
    const worker = await Promise.race([
      this.#queue.play(rollout, this.#assignment(rollout)),
      rollout.ended.then(() => undefined),
    ]);
    if (!worker) return;
    const { program } = worker;
    try {
      await this.#within(rollout, program);
    } catch (error) {
      // A worker's remaining work for this rollout would delay the next one.
      await program.stop();
      throw error;
    }
  }

  /** Waits for the end of a rollout. @throws ProgramFault when it takes too long */
  async #within(rollout: Rollout, program: Program): Promise<void> {
    const { timeoutMs } = this.settings;
    const late = setTimeout(() => {
      rollout.end(program.fault(`it was not done after ${timeoutMs / 1000} s (rollout.agent.timeout_s)`));
    }, timeoutMs);
    using _late = atEnd(() => clearTimeout(late));
    await rollout.ended;
  }

  #assignment({ id, apiKey, sessionToken, task }: Rollout): Assignment {
    const base = `${this.url}/rollouts/${id}`;
    return {
      OPENAI_BASE_URL: `${base}/v1`,
      OPENAI_API_KEY: apiKey,
      RAGEN_SESSION_URL: `${base}/session`,
      RAGEN_SESSION_TOKEN: sessionToken,
      RAGEN_MCP_URL: `${base}/mcp`,
      RAGEN_TASK: JSON.stringify(task),
    };
  }
}

type StepRecord = Schemas['TrajectoryRecord'];

/** An episode played by a program, with the results of its calls. */
interface ProgramEpisode {
  readonly rollout: Rollout;
  readonly records: readonly StepRecord[];
  readonly attempts: number;
}

/**
 * The agent that lets a program play whole episodes through a gateway. Rewards are those that the environment server
 * recorded, or a verifier's where the run has one.
 * @param attempts attempts at an episode before its group is dropped
 * @param note called with a line for every failed attempt
 */
export function programAgent(gateway: Gateway, attempts: number, note: (text: string) => void): EpisodeAgent {
  return {
    async play(plan, member, session, setting) {
      for (let attempt = 1; ; attempt++) {
        setting.check();
        if (attempt > 1) await session.startAgain();
        try {
          const rollout = await attempted(gateway, plan, member, session, setting, attempt);
          const records = await recordsOf(session, rollout, gateway.settings.verifierKey === undefined);
          const episode = episodeOf({ rollout, records, attempts: attempt }, session, setting);
          setting.tally.envSteps += records.length - 1;
          for (const { lossMask } of samplesOf(episode))
            for (const on of lossMask) setting.tally.sampledTokens += on;
          return episode;
        } catch (error) {
          setting.check();
          if (!(error instanceof ProgramFault)) throw error;
          const what = `attempt ${attempt} of ${attempts} at ${plan.tag} with seed ${plan.seed} failed: ${error.message}`;
          note(what);
          if (attempt >= attempts) throw new ProgramFault(what, { cause: error });
        }
      }
    },
  };
}

async function attempted(
  gateway: Gateway,
  plan: GroupPlan,
  member: number,
  session: EnvironmentSession,
  { described, sampling, samplingSeed, tally, prompt, signal }: EpisodeSetting,
  attempt: number,
): Promise<Rollout> {
  const began = performance.now();
  const { responseLength } = prompt.task;
  // Another attempt samples other tokens.
  const seed = attempt === 1 ? samplingSeed : mixSeed(samplingSeed, attempt);
  try {
    return await gateway.play({
      plan,
      member,
      session: session.handle,
      task: taskOf(described, session.observation),
      sampling: { ...sampling, stopStrings: sampling.stopStrings ?? [], responseLength, seed },
      signal,
    });
  } finally {
    tally.agentMs += performance.now() - began;
  }
}

function taskOf({ tag, description }: EpisodeSetting['described'], observation: string): ProgramTask {
  const { actions, actionFormat, instruction } = description;
  return {
    env_id: tag.environmentId,
    instruction,
    observation,
    ...(actions ? { actions } : {}),
    ...(actionFormat === undefined ? {} : { action_format: actionFormat }),
    max_steps: tag.maxActionsPerTrajectory,
  };
}

/**
 * The server's record of the program's episode.
 * @throws ProgramFault for a program that asked nothing, did nothing, or began another episode
 */
async function recordsOf(
  session: EnvironmentSession,
  rollout: Rollout,
  mustAct: boolean,
): Promise<readonly StepRecord[]> {
  if (rollout.calls.length === 0) throw new ProgramFault('it ended without a call of the model');
  const { server, sessionId } = session.handle;
  const { records } = await server.batched('trajectory', { session_id: sessionId });
  const [reset, ...steps] = records;
  if (reset.episode_id !== session.episodeId) {
    throw new ProgramFault('it reset the session: a rollout is one episode');
  }
  if (mustAct && steps.length === 0) throw new ProgramFault('it ended without a move');
  if (!mustAct && rollout.reward === undefined) throw new ProgramFault('no verifier gave it a reward');
  return records;
}

function episodeOf(
  { rollout, records, attempts }: ProgramEpisode,
  session: EnvironmentSession,
  { described: { tag } }: EpisodeSetting,
): Episode {
  const { plan, member, calls } = rollout;
  const merged = mergeCalls(calls);
  const last = records.at(-1)!;
  const over = last.terminated === true || last.truncated === true;
  const success = over && last.info.success === true;
  const endedBy = over ? endOf(last.info as JsonObject, undefined) : undefined;
  return {
    episodeId: `${tag.name}/${plan.seed}/${plan.groupId}.${member}`,
    environmentId: tag.environmentId,
    tag: tag.name,
    groupId: plan.groupId,
    member,
    seed: plan.seed,
    server: session.server,
    ...(session.levelId === undefined ? {} : { levelId: session.levelId }),
    turns: turnsOf(rollout, records, merged),
    success,
    terminated: over,
    ...(endedBy === undefined ? {} : { endedBy }),
    finalState: textOf(last.observation),
    ...merged.samples.at(-1)!,
    ...(merged.samples.length > 1 ? { samples: merged.samples } : {}),
    program: {
      calls: calls.length,
      merges: merged.merges,
      retokenizedTokens: merged.retokenized,
      failedAttempts: attempts - 1,
    },
  };
}

/** One turn per call, with the steps that the program made between it and the next call. */
function turnsOf(rollout: Rollout, records: readonly StepRecord[], { places }: MergedCalls): Turn[] {
  const { calls, callsBefore } = rollout;
  const [reset, ...steps] = records;
  const last = calls.length - 1;
  const owners = steps.map(({ step }) => {
    const before = callsBefore.get(step);
    return before === undefined ? last : Math.min(last, Math.max(0, before - 1));
  });
  let state = textOf(reset.observation);
  return calls.map((call, index): Turn => {
    const own = steps.filter((_, i) => owners[i] === index);
    const earned = own.reduce((sum, { reward = 0 }) => sum + reward, 0);
    const turn = turnOf(call, state, own, places[index]);
    state = own.length > 0 ? textOf(own.at(-1)!.observation) : state;
    if (rollout.reward === undefined) return { ...turn, reward: earned };
    return { ...turn, reward: index === last ? rollout.reward : 0 };
  });
}

function turnOf(
  { text, finishReason }: ModelCall,
  state: string,
  steps: readonly StepRecord[],
  { tokens, sample }: MergedCalls['places'][number],
): Omit<Turn, 'reward'> {
  const rewards = sumComponents(steps.map(({ info }) => info ?? {}));
  return {
    state,
    ...(rewards ? { rewards } : {}),
    actionsLeft: 0,
    actions: steps.map(({ action }) => action as Json),
    penalty: 0,
    info: (steps.at(-1)?.info ?? {}) as JsonObject,
    response: text,
    rawResponse: text,
    tokens,
    sample,
    finishReason,
  };
}

function textOf(observation: StepRecord['observation']): string {
  return typeof observation === 'string' ? observation : JSON.stringify(observation);
}
