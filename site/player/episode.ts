import type { Json } from '../../shared/json.ts';
import {
  DEFAULT_SETUP,
  type EpisodeEvent,
  type EpisodeState,
  isEmpty,
  type PlaySetup,
  reduceEpisode,
} from './session-state.ts';
import type { Environment, Reseed, Schemas, Session, SessionDetail } from './wire.ts';
import { type EnvironmentServer, type Operation, resultOf } from './wire.ts';

/** Snapshots after which a reset opens a new session instead: a session may only have this many. */
const MANY_SNAPSHOTS = 512;

/** Repeated steps that can be undone one by one. */
const MAX_REMEMBERED = 100;

/**
 * The environment under a setup.
 * @throws RequestFailed with pointers below `/config` and `/wrappers`
 */
export function describe(
  server: EnvironmentServer,
  envId: string,
  { config, wrappers }: PlaySetup,
): Promise<Environment> {
  return server.run('describe_environment', { env_id: envId, config, wrappers });
}

interface EpisodeSeeds {
  /** Drawn by the server when absent. */
  readonly seed?: number;
  /** Seed of the randomness after the start, where it differs from the seed's. */
  readonly dynamicsSeed?: number;
}

/** The session of a visitor's episode: sends requests, and keeps the snapshots for Undo. */
export class Episode {
  readonly #server: EnvironmentServer;
  #state: EpisodeState;
  /** Snapshots by the number of steps before them. */
  #snapshots: Promise<string | undefined>[] = [];
  #snapshotsTaken = 0;
  /** Called when more is known of a state that is shown. */
  onsnapshot: () => void = () => {};

  private constructor(server: EnvironmentServer, state: EpisodeState) {
    this.#server = server;
    this.#state = state;
  }

  /**
   * Opens a session.
   * @throws RequestFailed with pointers into the setup
   */
  static async begin(
    server: EnvironmentServer,
    environment: Environment,
    setup: PlaySetup,
    start: EpisodeSeeds = {},
  ): Promise<Episode> {
    const session = await create(server, environment.env_id, setup, start);
    const state = { environment, setup, session, moves: [], structured: undefined, snapshots: [] };
    const episode = new Episode(server, state);
    episode.#rememberHere();
    await episode.#look();
    return episode;
  }

  get state(): EpisodeState {
    return this.#state;
  }

  /** @throws RequestFailed; `invalid_action`, `episode_over` among others */
  async step(action: Json): Promise<void> {
    await this.#snapshots[this.#step];
    const result = await this.#run<Schemas['StepResult']>('step', { action });
    if (result.step === this.#step + 1) this.#apply({ type: 'stepped', action, result });
    else await this.#reread();
    this.#rememberHere();
    await this.#look();
  }

  /** Goes back by one step. */
  async undo(): Promise<void> {
    const step = this.#step - 1;
    const snapshot = await this.#snapshots[step];
    if (snapshot === undefined) return;
    const session = await this.#run<Session>('restore', { snapshot_id: snapshot });
    this.#snapshots.length = step + 1;
    this.#apply({ type: 'restored', session, step });
    await this.#look();
  }

  /** @param seed drawn by the server when absent */
  async reset(seed: number | undefined): Promise<void> {
    await this.#snapshots[this.#step];
    const { environment, setup, session: old } = this.#state;
    let session: Session;
    if (this.#snapshotsTaken < MANY_SNAPSHOTS) {
      const { options } = setup;
      session = await this.#run<Session>('reset', {
        ...(seed !== undefined && { seed }),
        ...(!isEmpty(options) && { options }),
      });
    } else {
      session = await create(this.#server, environment.env_id, setup, { seed });
      this.#snapshotsTaken = 0;
      await this.#server.run('close', { session_id: old.session_id });
    }
    this.#snapshots = [];
    this.#apply({ type: 'reset', session });
    this.#rememberHere();
    await this.#look();
  }

  /**
   * Repeats earlier actions from the start without showing them.
   * @param reseeds changes of the random stream, by the number of actions before them
   * @throws RequestFailed when one is rejected
   */
  async repeat(actions: readonly Json[], reseeds: readonly Reseed[] = []): Promise<void> {
    const first = await this.#snapshots[0];
    const { session, environment } = this.#state;
    const { session_id } = session;
    const from = environment.capabilities.snapshot ? Math.max(1, actions.length - MAX_REMEMBERED) : Infinity;
    const ids: string[] = [];
    let done = 0;
    const repeatTo = async (step: number) => {
      const items = actions
        .slice(done, step)
        .flatMap((action, i) => [
          ...(done + i >= from ? [{ op: 'snapshot' as const, session_id }] : []),
          { op: 'step' as const, session_id, action },
        ]);
      done = Math.max(done, step);
      if (items.length === 0) return;
      for (const reply of await this.#server.batch(items)) {
        const result = resultOf<object>(reply);
        if ('snapshot_id' in result) ids.push(String(result.snapshot_id));
      }
    };
    for (const { step, dynamics_seed } of reseeds.filter(({ step }) => step <= actions.length)) {
      await repeatTo(step);
      const { snapshot_id } = await this.#run<Schemas['Snapshot']>('snapshot');
      this.#snapshotsTaken++;
      await this.#run('restore', { snapshot_id, dynamics_seed });
    }
    await repeatTo(actions.length);
    await this.#reread();
    const remember = (step: number, id: string | undefined) => {
      if (id === undefined) return;
      this.#snapshots[step] = Promise.resolve(id);
      this.#apply({ type: 'remembering', step });
    };
    remember(0, first);
    for (const [index, id] of ids.entries()) remember(from + index, id);
    this.#snapshotsTaken += ids.length;
    this.#rememberHere();
    await this.#look();
  }

  /** Next action of a reference policy; undefined when nothing useful is left. */
  async plan(policy: string): Promise<Json | undefined> {
    const { actions } = await this.#run<Schemas['ReferencePlan']>('reference', { policy, count: 1 });
    return actions[0] as Json | undefined;
  }

  /**
   * Asks a reference policy what it would have done in place of the last action, in a separate session.
   * @throws RequestFailed
   */
  async explain(policy: string): Promise<void> {
    const { environment, setup, session, moves } = this.#state;
    // Its chance is that of the episode, from the start on.
    if (!environment.capabilities.seed || session.seed == null || session.reseeds) return;
    const seeds = { seed: session.seed, dynamicsSeed: session.dynamics_seed };
    const start = startOf(environment.env_id, setup, seeds);
    const [created] = await this.#server.batch([{ op: 'create', ...start }]);
    const { session_id } = resultOf<Session>(created);
    const before = moves.slice(0, -1).map(({ action }) => ({ op: 'step' as const, session_id, action }));
    const replies = await this.#server.batch([
      ...before,
      { op: 'reference', session_id, policy, count: 1 },
      { op: 'close', session_id },
    ]);
    const [action] = resultOf<Schemas['ReferencePlan']>(replies[before.length]).actions as readonly Json[];
    const isSame = JSON.stringify(action) === JSON.stringify(moves.at(-1)?.action);
    if (action === undefined || isSame || moves !== this.#state.moves) return;
    this.#apply({ type: 'explained', better: { policy, action } });
    this.onsnapshot();
  }

  close(): Promise<void> {
    return this.#run('close');
  }

  #run<T>(operation: Operation, parameters: object = {}): Promise<T> {
    return this.#server.run<T>(operation, { session_id: this.#state.session.session_id, ...parameters });
  }

  #apply(event: EpisodeEvent): void {
    this.#state = reduceEpisode(this.#state, event);
  }

  get #step(): number {
    return this.#state.moves.length;
  }

  /** Requests the state as plain data. */
  async #look(): Promise<void> {
    this.#apply({ type: 'seen', structured: await this.#run('render', { mode: 'structured' }) });
  }

  /** Adds steps that somebody else took in this session, by curl for example. */
  async #reread(): Promise<void> {
    const { session_id } = this.#state.session;
    const [trajectory, detail] = await this.#server.batch([
      { op: 'trajectory', session_id },
      { op: 'get', session_id },
    ]);
    const { records } = resultOf<Schemas['Trajectory']>(trajectory);
    this.#snapshots = [];
    this.#apply({ type: 'reread', session: resultOf<SessionDetail>(detail), records });
  }

  #rememberHere(): void {
    if (!this.#state.environment.capabilities.snapshot) {
      const problem = 'The environment holds more than its state, so there is no way back.';
      this.#apply({ type: 'forgotten', problem });
      return;
    }
    this.#snapshotsTaken++;
    const snapshots = this.#snapshots;
    const step = this.#step;
    this.#apply({ type: 'remembering', step });
    snapshots[step] = this.#run<Schemas['Snapshot']>('snapshot')
      .then(
        ({ snapshot_id }) => {
          if (this.#state.undoProblem !== undefined) this.#apply({ type: 'remembered' });
          return snapshot_id;
        },
        (error: Error) => {
          const isCurrent = snapshots === this.#snapshots;
          this.#apply({ type: 'forgotten', step: isCurrent ? step : undefined, problem: error.message });
          return undefined;
        },
      )
      .finally(() => this.onsnapshot());
  }
}

const create = (
  server: EnvironmentServer,
  envId: string,
  setup: PlaySetup,
  seeds: EpisodeSeeds,
): Promise<Session> => server.run('create', startOf(envId, setup, seeds));

/** Parameters of a new session. */
function startOf(
  envId: string,
  { config, wrappers, options, format }: PlaySetup,
  { seed, dynamicsSeed }: EpisodeSeeds,
) {
  return {
    env_id: envId,
    ...(seed !== undefined && { seed }),
    ...(dynamicsSeed !== undefined && { dynamics_seed: dynamicsSeed }),
    ...(!isEmpty(config) && { config }),
    ...(wrappers.length > 0 && { wrappers }),
    ...(!isEmpty(options) && { options }),
    ...(format !== DEFAULT_SETUP.format && { observation_format: format }),
  };
}
