import type { Json } from '../../shared/json.ts';
import type { Schemas } from '../client/operations.ts';
import { BadReply, ServerProblem, ServerUnavailable } from '../client/retry.ts';
import type { EnvServer } from '../client/server.ts';
import type { ServerPool } from '../client/servers.ts';
import {
  createInput,
  memberSpec,
  type OpenedSession,
  observationText,
  type SessionAddress,
  type SessionSpec,
  type StepResult,
  seeState,
  takeSteps,
} from './session-requests.ts';

/** Most moves of an episode to a new session. */
const MAX_MOVES = 5;

/** Codes of a session that is gone, or in an unknown state after a lost reply: it is rebuilt from seed and actions. */
const LOST_CODES: ReadonlySet<string> = new Set([
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

/** Failures of an environment or its session that cost one episode; others are faults of the request. */
export const costsTheEpisode = (error: unknown): error is ServerProblem | BadReply =>
  error instanceof BadReply ||
  (error instanceof ServerProblem && (error.status >= 500 || LOST_CODES.has(error.code)));

/** Longest observation in characters, pictures included: it is kept and sent whole. */
const MAX_OBSERVATION_LENGTH = 8 * 2 ** 20;

/** Episodes that may fail at their start before an environment counts as broken. */
export const OPENING_ATTEMPTS = 5;

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
  readonly spec: SessionSpec;
  /** The environment's id of the level; undefined where the first observation identifies it. */
  levelId: string | undefined;
  /** The episode that the session began with. */
  episodeId: string;
  /** The state as plain JSON; undefined unless it is recorded and the server returns it. */
  structured: Json | undefined;
  /**
   * States between the actions of the last `act`, one fewer than the executed actions; empty where states are not
   * recorded.
   */
  between: readonly Json[] = [];
  /**
   * Actions that are legal now, as answers write them; undefined unless the specification asks for them, and where the
   * environment does not list them.
   */
  validActions: readonly string[] | undefined;
  /** Actions that were sent, unknown ones included. */
  readonly actions: Json[] = [];
  /** Changes of the random stream since the start, in order. */
  reseeds: readonly Reseed[] = [];
  /** Names the state; undefined unless the specification asks for it. */
  stateKey: string | undefined;
  readonly extraSteps: ExtraSteps = { recovery: 0, replayed: 0 };
  /** Number of times the episode had to be moved to a new session. */
  moves = 0;
  readonly #servers: ServerPool;
  #server: EnvServer;
  #sessionId: string;
  #observation: Schemas['Observation'];
  #closed = false;
  /** True while the server's load includes this episode. */
  #counted = true;

  private constructor(servers: ServerPool, server: EnvServer, spec: SessionSpec, session: OpenedSession) {
    this.#servers = servers;
    this.spec = spec;
    this.#server = server;
    this.#sessionId = session.session_id;
    this.episodeId = session.episode_id;
    this.#observation = session.observation;
    this.levelId = session.level_id;
    this.stateKey = session.state_key;
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
        const created = await server.batched('create', { ...createInput(spec), count: size }, spec.mayWait);
        const members = created.sessions ?? [created];
        const sessions = members.map(
          (member, index) => new EnvironmentSession(servers, server, memberSpec(spec, index), member),
        );
        const seen = await seeState(sessions[0].handle, spec);
        for (const session of sessions) {
          session.structured = seen.structured;
          session.validActions = seen.validActions;
        }
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

  /** The state as text. @throws BadReply where it is longer than any policy reads */
  get observation(): string {
    const text = observationText(this.#observation);
    if (text.length <= MAX_OBSERVATION_LENGTH) return text;
    const what = `an observation of ${text.length} characters, of at most ${MAX_OBSERVATION_LENGTH}`;
    throw new BadReply(this.server, this.spec.environmentId, what);
  }

  /** Address of the session, for programs that play it themselves; {@link act} knows nothing of what they do. */
  get handle(): SessionAddress {
    return { server: this.#server, sessionId: this.#sessionId };
  }

  /** Begins again from the seed in a new session, for an episode that a program has spoiled. */
  async startAgain(): Promise<void> {
    await this.#server.batched('close', { session_id: this.#sessionId }).catch(() => undefined);
    this.#observation = (await this.#create()).observation;
    if (this.#closed) await this.#end();
  }

  /** Seed of the randomness after the level; undefined where the level's seed covers it. */
  get dynamicsSeed(): number | undefined {
    return this.spec.dynamicsSeed;
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
  async #actOnce(actions: readonly Json[]): Promise<readonly StepResult[]> {
    const results = await this.#surviving(() => this.#steps(actions, this.actions.length));
    this.actions.push(...actions.slice(0, results.length));
    const last = results.at(-1);
    if (last) {
      this.#observation = last.observation;
      this.stateKey = last.state_key;
    }
    return results;
  }

  /**
   * The next actions of a reference policy, as names or texts.
   * @param turns remaining turns, this one included
   */
  async reference(policy: string, count: number, turns: number): Promise<readonly Json[]> {
    const plan = await this.#surviving(() =>
      this.#server.batched(
        'reference',
        { session_id: this.#sessionId, policy, count, turns },
        this.spec.mayWait,
      ),
    );
    return plan.actions as readonly Json[];
  }

  /**
   * Opens further sessions in this one's state, with its history. Close each of them.
   * @param dynamicsSeed seed of the first session's randomness from here on, that of the k-th is k more; absent: all
   * draw the same as this session would
   * @throws ReplayDiverged where the state could not be copied and replaying the actions gave another one
   */
  async branch(count: number, dynamicsSeed?: number): Promise<EnvironmentSession[]> {
    if (count === 0) return [];
    return this.#surviving(() =>
      this.spec.copyable ? this.#clones(count, dynamicsSeed) : this.#replays(count),
    );
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
      clone.actions.push(...this.actions);
      clone.structured = this.structured;
      clone.validActions = this.validActions;
      clone.levelId = this.levelId;
      const step = this.actions.length;
      const before = this.reseeds.filter(reseed => reseed.step < step);
      clone.reseeds =
        dynamicsSeed === undefined ? this.reseeds : [...before, { step, dynamicsSeed: dynamicsSeed + k }];
      return clone;
    });
  }

  /** Further sessions by replaying seed and actions, with each observation compared. */
  async #replays(count: number): Promise<EnvironmentSession[]> {
    const opened = await EnvironmentSession.openGroup(this.#servers, this.spec, count);
    try {
      for (const session of opened) {
        if (this.actions.length > 0) await session.act(this.actions);
        this.extraSteps.replayed += session.actions.length;
        if (session.observation !== this.observation || session.actions.length !== this.actions.length)
          throw new ReplayDiverged(session.server, this.spec, session.actions.length);
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

  /** Result of an action that the server rejected. */
  #rejectedStep(): StepResult {
    return {
      ...{ session_id: this.#sessionId, episode_id: this.episodeId, step: this.actions.length },
      ...{ observation: this.#observation, reward: 0, terminated: false, truncated: false },
      ...(this.stateKey === undefined ? {} : { state_key: this.stateKey }),
      info: { success: false, action_is_valid: false, action_is_effective: false },
    };
  }

  /** Carries out actions in one batch. @returns results up to the first rejected action */
  async #steps(actions: readonly Json[], done: number): Promise<readonly StepResult[]> {
    const { results, states, validActions } = await takeSteps(this.handle, this.spec, actions, done);
    this.validActions = validActions;
    if (states.length > 0) this.structured = states.at(-1);
    this.between = states.slice(0, -1).filter(state => state !== undefined);
    return results;
  }

  /** Does the work again each time that a lost session could be opened again. */
  async #surviving<T>(work: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        await this.#recover(error);
      }
    }
  }

  /** Opens the session again after an error that this can repair; throws other errors. */
  async #recover(error: unknown): Promise<void> {
    for (let cause = error; ; ) {
      const gone = cause instanceof ServerProblem && LOST_CODES.has(cause.code);
      const away = cause instanceof ServerUnavailable && this.#servers.servers.length > 1;
      if (this.#closed || (!gone && !away) || this.moves >= MAX_MOVES) throw cause;
      if (away && !(await this.#servers.anyThere(this.spec.tag))) throw cause;
      this.moves++;
      if (gone) this.#servers.onReplay(this.spec.tag ?? this.spec.environmentId, cause as Error);
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

  /** Opens a new session in place of the present one. */
  async #create(): Promise<OpenedSession> {
    const created = await this.#server.batched('create', createInput(this.spec), this.spec.mayWait);
    this.#sessionId = created.session_id;
    this.episodeId = created.episode_id;
    return created;
  }

  async #reopen(elsewhere: boolean): Promise<void> {
    if (elsewhere) {
      this.#leave();
      this.#server = this.#servers.pick({ tag: this.spec.tag, except: this.#server });
      this.#counted = true;
    }
    const created = await this.#create();
    if (this.#closed) {
      await this.#end();
      throw new Error('the session was closed while it was being opened again');
    }
    const played = this.actions;
    let done = 0;
    let last = created.observation;
    // The lineage: so far under one stream, then under the next.
    for (const { step, dynamicsSeed } of [
      ...this.reseeds,
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
    this.episodeId = restored.episode_id;
  }
}
