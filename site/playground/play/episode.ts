import type { Json } from '../../../shared/json.ts';
import { type Client, environmentPath, RequestFailed, sessionPath } from '../client/client.ts';
import type { Environment, Schemas, Session, SessionDetail, TrajectoryRecord } from '../client/wire.ts';
import {
  DEFAULT_SETUP,
  type EpisodeEvent,
  type EpisodeState,
  isEmpty,
  type PlaySetup,
  reduceEpisode,
} from './session-state.ts';

/** Snapshots after which a reset opens a new session instead: a session may only have this many. */
const MANY_SNAPSHOTS = 512;

/** Repeated steps that can be undone one by one. */
const MAX_REMEMBERED = 100;

/**
 * The environment under a setup.
 * @throws RequestFailed with pointers below `/config` and `/wrappers`
 */
export function describe(
  client: Client,
  envId: string,
  { config, wrappers }: PlaySetup,
): Promise<Environment> {
  return client.json('POST', environmentPath(envId, 'describe'), { body: { config, wrappers }, quiet: true });
}

/** The session of an episode that the visitor plays: asks the server, and keeps the snapshots that lead back. */
export class Episode {
  readonly #client: Client;
  #state: EpisodeState;
  /** Snapshots by the number of steps taken before them. */
  #snapshots: Promise<string | undefined>[] = [];
  #snapshotsTaken = 0;
  /** Called when a snapshot was taken or refused after its step was shown. */
  onsnapshot: () => void = () => {};

  private constructor(client: Client, state: EpisodeState) {
    this.#client = client;
    this.#state = state;
  }

  /**
   * Opens a session.
   * @param seed drawn by the server when absent
   * @throws RequestFailed with pointers into the setup
   */
  static async begin(
    client: Client,
    environment: Environment,
    setup: PlaySetup,
    seed?: number,
  ): Promise<Episode> {
    const session = await create(client, environment.env_id, setup, seed);
    const start = { environment, setup, session, moves: [], structured: undefined, snapshots: [] };
    const episode = new Episode(client, start);
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
    const result = await this.#client.json<Schemas['StepResult']>('POST', this.#path('step'), {
      body: { action },
    });
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
    const session = await this.#client.json<Session>('POST', this.#path('restore'), {
      body: { snapshot_id: snapshot },
    });
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
      session = await this.#client.json<Session>('POST', this.#path('reset'), {
        body: { ...(seed !== undefined && { seed }), ...(!isEmpty(options) && { options }) },
      });
    } else {
      session = await create(this.#client, environment.env_id, setup, seed);
      this.#snapshotsTaken = 0;
      await close(this.#client, old.session_id);
    }
    this.#snapshots = [];
    this.#apply({ type: 'reset', session });
    this.#rememberHere();
    await this.#look();
  }

  /** Takes actions from the start that were taken before, unseen. @throws RequestFailed when one is refused */
  async repeat(actions: readonly Json[]): Promise<void> {
    const first = await this.#snapshots[0];
    const { session, environment } = this.#state;
    const { session_id } = session;
    const from = environment.capabilities.snapshot ? Math.max(1, actions.length - MAX_REMEMBERED) : Infinity;
    const items = actions.flatMap((action, step) => [
      ...(step >= from ? [{ op: 'snapshot' as const, session_id }] : []),
      { op: 'step' as const, session_id, action },
    ]);
    const ids: string[] = [];
    for (const reply of await this.#client.batch(items)) {
      if ('error' in reply) throw new RequestFailed(reply.error);
      if ('result' in reply && reply.result && 'snapshot_id' in reply.result)
        ids.push(String(reply.result.snapshot_id));
    }
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
    const { actions } = await this.#client.json<Schemas['ReferencePlan']>('POST', this.#path('reference'), {
      body: { policy, count: 1 },
      quiet: true,
    });
    return actions[0] as Json | undefined;
  }

  /** The episode so far as JSON Lines. */
  trajectory(): Promise<string> {
    return this.#client.text(this.#path('trajectory'));
  }

  close(): Promise<void> {
    return close(this.#client, this.#state.session.session_id);
  }

  #apply(event: EpisodeEvent): void {
    this.#state = reduceEpisode(this.#state, event);
  }

  get #step(): number {
    return this.#state.moves.length;
  }

  #path(operation: string): string {
    return sessionPath(this.#state.session.session_id, operation);
  }

  /** Asks how the state is as plain data. */
  async #look(): Promise<void> {
    const path = this.#path('render?mode=structured');
    this.#apply({ type: 'seen', structured: await this.#client.json('GET', path, { quiet: true }) });
  }

  /** Takes over what somebody else did in this session, by curl for example. */
  async #reread(): Promise<void> {
    const lines = await this.#client.text(this.#path('trajectory'), { quiet: true });
    const records: TrajectoryRecord[] = lines
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line));
    const session = await this.#client.json<SessionDetail>('GET', this.#path(''), { quiet: true });
    this.#snapshots = [];
    this.#apply({ type: 'reread', session, records });
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
    snapshots[step] = this.#client
      .json<Schemas['Snapshot']>('POST', this.#path('snapshot'), { quiet: true })
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

function create(client: Client, envId: string, setup: PlaySetup, seed: number | undefined): Promise<Session> {
  const { config, wrappers, options, format } = setup;
  return client.json('POST', 'v1/sessions', {
    body: {
      env_id: envId,
      ...(seed !== undefined && { seed }),
      ...(!isEmpty(config) && { config }),
      ...(wrappers.length > 0 && { wrappers }),
      ...(!isEmpty(options) && { options }),
      ...(format !== DEFAULT_SETUP.format && { observation_format: format }),
    },
  });
}

function close(client: Client, sessionId: string): Promise<void> {
  return client.json('DELETE', sessionPath(sessionId), { quiet: true, keepalive: true });
}
