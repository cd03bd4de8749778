import type { Json, JsonObject } from '../../shared/json.ts';
import { isParts, textOfParts } from '../../shared/observation-parts.ts';
import { ServerProblem, ServerUnavailable } from '../client/errors.ts';
import type { Request, Schemas } from '../client/operations.ts';
import type { BatchReply } from '../client/reply.ts';
import type { EnvServer } from '../client/server.ts';
import type { ServerPool } from '../client/servers.ts';

/** Most moves of an episode to a new session. */
const MAX_MOVES = 5;

/** Codes of a session that is gone, or in an unknown state after a lost reply: it is rebuilt from seed and actions. */
export const LOST_CODES: ReadonlySet<string> = new Set([
  'unknown_session',
  'session_expired',
  'session_closed',
  'session_lost',
  'session_rolled_back',
  'wrong_step',
  // The service behind the environment failed in this step or an earlier one.
  'remote_failed',
  'episode_over',
]);

/** Specification that opens a session, and an equal one again. */
export interface SessionSpec {
  readonly environmentId: string;
  /** Decides which servers may play it, where they have weights by tag. */
  readonly tag?: string;
  readonly config: JsonObject;
  readonly options?: JsonObject;
  /** Absent for environments that refuse one. */
  readonly seed?: number;
  /** Seed of all chance after the start; member k of a group has it plus k. Absent: the generator of `seed` continues. */
  readonly dynamicsSeed?: number;
  readonly groupName: string;
  /** States can be copied; otherwise a branch repeats the actions. */
  readonly copyable?: boolean;
  /** Replies name the state. */
  readonly stateKeys?: boolean;
  /** The state is also asked for as plain JSON. */
  readonly record?: boolean;
  /** The valid actions of each state are asked for. */
  readonly validActions?: boolean;
  /** Wrappers around the environment, the innermost first. */
  readonly wrappers?: readonly { readonly name: string; readonly options: JsonObject }[];
}

/** An episode was played again from its seed and actions, and came out differently. */
export class ReplayDiverged extends Error {
  constructor(server: string, spec: SessionSpec, step: number) {
    super(
      `${server}: playing ${spec.environmentId} with seed ${spec.seed} again gave another episode at step ${step}; ` +
        'is the environment deterministic under its seed, and the same version on all servers?',
    );
    this.name = 'ReplayDiverged';
  }
}

type StepResult = Schemas['StepResult'];
type OpenedSession = Pick<
  Schemas['Session'],
  'session_id' | 'episode_id' | 'observation' | 'level_id' | 'state_key'
>;

/** A new random stream in mid-episode. */
export interface Reseed {
  /** Steps before the change. */
  readonly step: number;
  readonly dynamicsSeed: number;
}

/** Steps of an episode besides its own. */
export interface ExtraSteps {
  /** Taken again because a session was lost. */
  recovery: number;
  /** Taken again for branches of states that could not be copied. */
  replayed: number;
}

/**
 * One episode on a server. It survives the loss of a server: a lost session is opened again, there or on another
 * server, and brought to its state by seed and actions. No action is ever carried out twice in an episode.
 */
export class EnvironmentSession {
  /** The environment's id of the level; undefined where the first observation identifies it. */
  levelId: string | undefined;
  readonly #servers: ServerPool;
  readonly spec: SessionSpec;
  #server: EnvServer;
  #sessionId: string;
  #episodeId: string;
  #observation: Schemas['Observation'];
  #structured: Json | undefined;
  #between: readonly Json[] = [];
  #validActions: readonly string[] | undefined;
  readonly #actions: Json[] = [];
  #reseeds: readonly Reseed[] = [];
  #stateKey: string | undefined;
  readonly extraSteps: ExtraSteps = { recovery: 0, replayed: 0 };
  #moves = 0;
  #closed = false;
  /** True while the server's load includes this episode. */
  #counted = true;

  private constructor(servers: ServerPool, server: EnvServer, spec: SessionSpec, session: OpenedSession) {
    this.#servers = servers;
    this.spec = spec;
    this.#server = server;
    this.#sessionId = session.session_id;
    this.#episodeId = session.episode_id;
    this.#observation = session.observation;
    this.levelId = session.level_id;
    this.#stateKey = session.state_key;
  }

  /**
   * A group: `size` sessions that start from the same state, all on the least busy server. Close each of them.
   * @throws ServerProblem when the server rejects it; ServerUnavailable when none answers
   */
  static async openGroup(
    servers: ServerPool,
    spec: SessionSpec,
    size: number,
  ): Promise<EnvironmentSession[]> {
    const work = { amount: size, tag: spec.tag };
    let server = servers.pick(work);
    for (let move = 0; ; move++) {
      try {
        const created = await server.batched('create', { ...createInput(spec), count: size });
        const members = created.sessions ?? [created];
        const sessions = members.map(
          (member, index) => new EnvironmentSession(servers, server, memberSpec(spec, index), member),
        );
        if (spec.record) await sessions[0].#seeStructured(sessions);
        if (spec.validActions) await sessions[0].#seeValidActions(sessions);
        return sessions;
      } catch (error) {
        servers.done(server, work);
        const elsewhere = error instanceof ServerUnavailable && servers.servers.length > 1;
        if (!elsewhere || move >= MAX_MOVES || !(await servers.anyThere(spec.tag))) throw error;
        server = servers.pick({ ...work, except: server });
      }
    }
  }

  /** Name of the server that plays it. */
  get server(): string {
    return this.#server.name;
  }

  /** The state as text. */
  get observation(): string {
    return observationText(this.#observation);
  }

  /** The state as plain JSON; undefined unless it is recorded and the server returns it. */
  get structured(): Json | undefined {
    return this.#structured;
  }

  /**
   * Actions that are legal now, as answers write them; undefined unless the specification asks for them, and where the environment
   * does not list them.
   */
  get validActions(): readonly string[] | undefined {
    return this.#validActions;
  }

  /** Names the state; undefined unless the specification asks for it. */
  get stateKey(): string | undefined {
    return this.#stateKey;
  }

  /** Changes of the random stream since the start, in order. */
  get reseeds(): readonly Reseed[] {
    return this.#reseeds;
  }

  /** Actions that were sent, unknown ones included. */
  get actions(): readonly Json[] {
    return this.#actions;
  }

  /**
   * States between the actions of the last `act`, one fewer than the executed actions; empty where states are not
   * recorded.
   */
  get between(): readonly Json[] {
    return this.#between;
  }

  /** Address of the session, for programs that play it themselves; {@link act} knows nothing of what they do. */
  get handle(): { readonly server: EnvServer; readonly sessionId: string } {
    return { server: this.#server, sessionId: this.#sessionId };
  }

  /** The episode that the session began with. */
  get episodeId(): string {
    return this.#episodeId;
  }

  /** Begins again from the seed in a new session, for an episode that a program has spoiled. */
  async startAgain(): Promise<void> {
    await this.#server.batched('close', { session_id: this.#sessionId }).catch(() => undefined);
    const created = await this.#server.batched('create', createInput(this.spec));
    this.#sessionId = created.session_id;
    this.#episodeId = created.episode_id;
    this.#observation = created.observation;
    if (this.#closed) await this.#end();
  }

  /** Seed of the randomness after the level; undefined where the level's seed covers it. */
  get dynamicsSeed(): number | undefined {
    return this.spec.dynamicsSeed;
  }

  /** Number of times the episode had to be moved to a new session. */
  get moves(): number {
    return this.#moves;
  }

  /**
   * Carries out actions in order until the episode ends, and returns their results. An action outside of the action
   * space, which the server rejects, is an invalid one that changes nothing.
   * @throws ServerProblem for a fault of the environment; ServerUnavailable; ReplayDiverged
   */
  async act(actions: readonly Json[]): Promise<StepResult[]> {
    const results: StepResult[] = [];
    while (results.length < actions.length) {
      const next = actions.slice(results.length);
      const played = await this.#actOnce(next);
      results.push(...played);
      const last = played.at(-1);
      if (last?.terminated || last?.truncated) break;
      if (played.length < next.length) results.push(this.#rejectedStep());
    }
    return results;
  }

  /** Carries out actions up to one that ends the episode, or to the first that the server rejects. */
  async #actOnce(actions: readonly Json[]): Promise<StepResult[]> {
    for (;;) {
      try {
        const results = await this.#steps(actions, this.#actions.length);
        for (let i = 0; i < results.length; i++) this.#actions.push(actions[i]);
        const last = results.at(-1);
        if (last) this.#observe(last);
        return results;
      } catch (error) {
        await this.#recover(error);
      }
    }
  }

  /**
   * The next actions of a reference policy, as names or texts.
   * @param turns remaining turns, this one included
   */
  async reference(policy: string, count: number, turns: number): Promise<readonly Json[]> {
    for (;;) {
      try {
        const plan = await this.#server.batched('reference', {
          session_id: this.#sessionId,
          policy,
          count,
          turns,
        });
        return plan.actions as readonly Json[];
      } catch (error) {
        await this.#recover(error);
      }
    }
  }

  /**
   * Opens further sessions in this one's state, with its history. Close each of them.
   * @param dynamicsSeed seed of the first session's randomness from here on, that of the k-th is k more; absent: all
   * draw the same as this session would
   * @throws ReplayDiverged where the state could not be copied and replaying the actions gave another one
   */
  async branch(count: number, dynamicsSeed?: number): Promise<EnvironmentSession[]> {
    if (count === 0) return [];
    for (;;) {
      try {
        return this.spec.copyable ? await this.#clones(count, dynamicsSeed) : await this.#replays(count);
      } catch (error) {
        if (error instanceof ReplayDiverged) throw error;
        await this.#recover(error);
      }
    }
  }

  async #clones(count: number, dynamicsSeed: number | undefined): Promise<EnvironmentSession[]> {
    const { sessions } = await this.#server.batched('clone', {
      session_id: this.#sessionId,
      count,
      ...(dynamicsSeed === undefined ? {} : { dynamics_seed: dynamicsSeed }),
    });
    this.#servers.add(this.#server, { amount: count, tag: this.spec.tag });
    return sessions.map((opened, k) => {
      const clone = new EnvironmentSession(this.#servers, this.#server, this.spec, opened);
      clone.#actions.push(...this.#actions);
      clone.#structured = this.#structured;
      clone.#validActions = this.#validActions;
      clone.levelId = this.levelId;
      const step = this.#actions.length;
      const before = this.#reseeds.filter(reseed => reseed.step < step);
      clone.#reseeds =
        dynamicsSeed === undefined ? this.#reseeds : [...before, { step, dynamicsSeed: dynamicsSeed + k }];
      return clone;
    });
  }

  /** Further sessions by replaying seed and actions, with each observation compared. */
  async #replays(count: number): Promise<EnvironmentSession[]> {
    const opened = await EnvironmentSession.openGroup(this.#servers, this.spec, count);
    try {
      for (const session of opened) {
        if (this.#actions.length > 0) await session.act(this.#actions);
        this.extraSteps.replayed += session.#actions.length;
        if (session.observation !== this.observation || session.#actions.length !== this.#actions.length)
          throw new ReplayDiverged(session.server, this.spec, session.#actions.length);
        session.levelId = this.levelId;
      }
      return opened;
    } catch (error) {
      for (const session of opened) void session.close();
      throw error;
    }
  }

  /** Closes the session. A failure is not an error: the server ends the session when it expires. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#end();
  }

  async #end(): Promise<void> {
    this.#leave();
    if (this.#server.away) return;
    await this.#server.batched('close', { session_id: this.#sessionId }).catch(() => undefined);
  }

  #observe({ observation, state_key }: Pick<OpenedSession, 'observation' | 'state_key'>): void {
    this.#observation = observation;
    this.#stateKey = state_key;
  }

  /** Result of an action that the server rejected. */
  #rejectedStep(): StepResult {
    return {
      ...{ session_id: this.#sessionId, episode_id: this.#episodeId, step: this.#actions.length },
      ...{ observation: this.#observation, reward: 0, terminated: false, truncated: false },
      ...(this.#stateKey === undefined ? {} : { state_key: this.#stateKey }),
      info: { success: false, action_is_valid: false, action_is_effective: false },
    };
  }

  /**
   * Carries out actions in one batch. After a rejected action the rest of the batch has no effect, because its step
   * numbers are too high.
   * @param done steps taken before these
   * @returns results up to the first rejected action
   */
  async #steps(actions: readonly Json[], done: number): Promise<StepResult[]> {
    const { record, validActions } = this.spec;
    const steps = actions.flatMap((action, i) => {
      const input = { session_id: this.#sessionId, action, expected_step: done + i + 1 };
      const step = this.#server.request('step', input) as Request;
      return record ? [step, this.#structuredRequest()] : [step];
    });
    const replies = await this.#server.batch(validActions ? [...steps, this.#validActionsRequest()] : steps);
    const results: StepResult[] = [];
    const states: (Json | undefined)[] = [];
    for (let i = 0; i < steps.length; i += record ? 2 : 1) {
      const reply = replies[i];
      if (reply instanceof ServerProblem && reply.code === 'invalid_action') break;
      if (reply instanceof Error) throw reply;
      const result = reply as StepResult;
      results.push(result);
      if (record) states.push(structuredIn(replies[i + 1]));
      if (result.terminated || result.truncated) break;
    }
    const last = results.at(-1);
    if (validActions && !last?.terminated && !last?.truncated) {
      this.#validActions = validIn(replies[steps.length]);
    }
    if (states.length > 0) this.#structured = states.at(-1);
    this.#between = states.slice(0, -1).filter(state => state !== undefined);
    return results;
  }

  #structuredRequest(): Request {
    const input = { session_id: this.#sessionId, mode: 'structured' } as const;
    return this.#server.request('render', input) as Request;
  }

  #validActionsRequest(): Request {
    return this.#server.request('valid_actions', { session_id: this.#sessionId }) as Request;
  }

  /** Asks for the actions of the first state of a group, which all its members share. */
  async #seeValidActions(members: readonly EnvironmentSession[]): Promise<void> {
    const [reply] = await this.#server.batch([this.#validActionsRequest()]);
    for (const member of members) member.#validActions = validIn(reply);
  }

  /**
   * Requests the first state of a group, which all its members share. If the server rejects the request, only the
   * picture is missing.
   */
  async #seeStructured(members: readonly EnvironmentSession[]): Promise<void> {
    const [reply] = await this.#server.batch([this.#structuredRequest()]);
    for (const member of members) member.#structured = structuredIn(reply);
  }

  /** Opens the session again after an error that this can repair; throws other errors. */
  async #recover(error: unknown): Promise<void> {
    for (let cause = error; ; ) {
      const gone = cause instanceof ServerProblem && LOST_CODES.has(cause.code);
      const away = cause instanceof ServerUnavailable && this.#servers.servers.length > 1;
      if (this.#closed || (!gone && !away) || this.#moves >= MAX_MOVES) throw cause;
      if (away && !(await this.#servers.anyThere(this.spec.tag))) throw cause;
      this.#moves++;
      try {
        await this.#reopen(away);
        return;
      } catch (next) {
        cause = next;
      }
    }
  }

  #leave(): void {
    if (this.#counted) this.#servers.done(this.#server, { tag: this.spec.tag });
    this.#counted = false;
  }

  async #reopen(elsewhere: boolean): Promise<void> {
    if (elsewhere) {
      this.#leave();
      this.#server = this.#servers.pick({ tag: this.spec.tag, except: this.#server });
      this.#counted = true;
    }
    const created = await this.#server.batched('create', createInput(this.spec));
    this.#sessionId = created.session_id;
    this.#episodeId = created.episode_id;
    if (this.#closed) {
      await this.#end();
      throw new Error('the session was closed while it was being opened again');
    }
    const played = this.#actions;
    let done = 0;
    let last = created.observation;
    // The lineage: so far under one stream, then under the next.
    for (const { step, dynamicsSeed } of [
      ...this.#reseeds,
      { step: played.length, dynamicsSeed: undefined },
    ]) {
      const results = step > done ? await this.#steps(played.slice(done, step), done) : [];
      done += results.length;
      this.extraSteps.recovery += results.length;
      last = results.at(-1)?.observation ?? last;
      if (done !== step) throw new ReplayDiverged(this.server, this.spec, done);
      if (dynamicsSeed !== undefined) await this.#reseed(dynamicsSeed);
    }
    if (observationText(last) !== observationText(this.#observation)) {
      throw new ReplayDiverged(this.server, this.spec, done);
    }
  }

  /** Gives this session a new random stream from here on. */
  async #reseed(dynamicsSeed: number): Promise<void> {
    const { snapshot_id } = await this.#server.batched('snapshot', { session_id: this.#sessionId });
    const restored = await this.#server.batched('restore', {
      session_id: this.#sessionId,
      snapshot_id,
      dynamics_seed: dynamicsSeed,
    });
    this.#episodeId = restored.episode_id;
  }
}

/** Specification of one member of a group, opened alone. */
function memberSpec(spec: SessionSpec, member: number): SessionSpec {
  return spec.dynamicsSeed === undefined ? spec : { ...spec, dynamicsSeed: spec.dynamicsSeed + member };
}

function createInput(spec: SessionSpec) {
  return {
    env_id: spec.environmentId,
    config: spec.config,
    group_id: spec.groupName,
    ...(spec.options ? { options: spec.options } : {}),
    ...(spec.wrappers ? { wrappers: [...spec.wrappers] } : {}),
    ...(spec.seed === undefined ? {} : { seed: spec.seed }),
    ...(spec.dynamicsSeed === undefined ? {} : { dynamics_seed: spec.dynamicsSeed }),
    ...(spec.stateKeys ? { state_key: true } : {}),
  };
}

/** @throws the server's refusal */
function validIn(reply: BatchReply): readonly string[] | undefined {
  if (reply instanceof Error) throw reply;
  return ((reply as Schemas['ValidActions']).valid_actions ?? undefined) as readonly string[] | undefined;
}

function structuredIn(reply: BatchReply): Json | undefined {
  return reply instanceof Error ? undefined : ((reply as Schemas['Rendering']).structured as Json);
}

/**
 * An observation as text. Pictures in its parts become `data:` URLs, which endpoints of vision models receive as
 * pictures.
 */
export function observationText(observation: Schemas['Observation']): string {
  if (isParts(observation)) return textOfParts(observation);
  return typeof observation === 'string' ? observation : JSON.stringify(observation);
}
