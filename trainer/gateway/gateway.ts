import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { onAbort } from '../../shared/closing.ts';
import { type SlotGroup, Slots } from '../../shared/scheduling/slots.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { ProgramFault } from '../rollout/episode-agent.ts';
import type { GroupPlan } from '../rollout/tag.ts';
import { PromptEncoder } from '../serve/openai/prompt-encoder.ts';
import { createGatewayApp, type OpenRollout } from './app.ts';
import { Program } from './program.ts';
import { type ProgramTask, Rollout, type RolloutLimits, type RolloutSession } from './rollout.ts';
import { type GatewayPolicy, RolloutModel, type RolloutSampling } from './rollout-model.ts';
import { type Assignment, WorkQueue } from './work-queue.ts';

/** Command and limits of programs. */
export interface GatewaySettings extends RolloutLimits {
  /** The program and its arguments. */
  readonly command: readonly string[];
  /** Long-running programs that ask for one episode after another; 0: one program is started per episode. */
  readonly workers: number;
  /** Programs at once where one is started per episode. */
  readonly processes: number;
  /** For one episode. */
  readonly timeoutMs: number;
  /** Bearer token of verifiers; undefined: rewards are the environment server's. */
  readonly verifierKey: string | undefined;
}

/** Settings of one attempt at an episode. */
export interface Attempt {
  readonly plan: GroupPlan;
  readonly member: number;
  readonly session: RolloutSession;
  readonly task: ProgramTask;
  readonly sampling: RolloutSampling;
  readonly signal?: AbortSignal;
}

/** Lets programs that speak OpenAI's API play episodes with a policy. */
export class Gateway {
  readonly url: string;
  readonly settings: GatewaySettings;
  readonly #policy: GatewayPolicy;
  readonly #tokenizer: Tokenizer;
  readonly #encoder: PromptEncoder;
  readonly #app: FastifyInstance;
  readonly #rollouts: Map<string, OpenRollout>;
  readonly #queue: WorkQueue;
  readonly #programs = new Set<Program>();
  readonly #slots: SlotGroup;

  private constructor(
    settings: GatewaySettings,
    policy: GatewayPolicy,
    tokenizer: Tokenizer,
    app: FastifyInstance,
    rollouts: Map<string, OpenRollout>,
    queue: WorkQueue,
  ) {
    this.settings = settings;
    this.#slots = new Slots({ most: settings.processes }).group('');
    this.#policy = policy;
    this.#tokenizer = tokenizer;
    this.#encoder = new PromptEncoder(tokenizer);
    this.#app = app;
    this.#rollouts = rollouts;
    this.#queue = queue;
    this.url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
  }

  /** Listens on a free port of the loopback address. */
  static async open(
    settings: GatewaySettings,
    policy: GatewayPolicy,
    tokenizer: Tokenizer,
  ): Promise<Gateway> {
    const rollouts = new Map<string, OpenRollout>();
    const queue = new WorkQueue();
    const app = createGatewayApp({ rollouts, queue, verifierKey: settings.verifierKey });
    await app.listen({ host: '127.0.0.1', port: 0 });
    const gateway = new Gateway(settings, policy, tokenizer, app, rollouts, queue);
    queue.start(settings, { RAGEN_GATEWAY_URL: gateway.url });
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
    try {
      await rollout.ended;
    } finally {
      clearTimeout(late);
    }
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
