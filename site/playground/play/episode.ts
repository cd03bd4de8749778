import type { Json, JsonObject } from '../../../shared/json.ts';
import { type Client, environmentPath, RequestFailed, sessionPath } from '../client/client.ts';
import type {
  Environment,
  Observation,
  Schemas,
  Session,
  SessionDetail,
  TrajectoryRecord,
  WrapperChoice,
} from '../client/wire.ts';

/** Settings with which an environment is played. */
export interface PlaySetup {
  readonly config: JsonObject;
  readonly wrappers: readonly WrapperChoice[];
  readonly options: JsonObject;
  readonly format: string;
}

export const DEFAULT_SETUP: PlaySetup = { config: {}, wrappers: [], options: {}, format: 'text' };

/** A step that was taken. */
export interface PlayedStep {
  readonly action: Json;
  readonly observation: Observation;
  readonly reward: number;
  readonly terminated: boolean;
  readonly truncated: boolean;
  readonly info: Schemas['Info'];
}

/** Snapshots after which a reset opens a new session instead: a session may only have so many. */
const MANY_SNAPSHOTS = 512;

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

/** An episode that the visitor plays: what happened so far, and the ways back. */
export class Episode {
  readonly #client: Client;
  readonly environment: Environment;
  readonly #setup: PlaySetup;
  session: Session;
  /** The state as plain data. */
  structured: unknown;
  moves: PlayedStep[] = [];
  /** Snapshots by the number of steps taken before them; undefined where there is none. */
  #snapshots: Promise<string | undefined>[] = [];
  #snapshotsTaken = 0;
  /** Why there is no way back, where there is none. */
  undoProblem: string | undefined;

  private constructor(client: Client, environment: Environment, setup: PlaySetup, session: Session) {
    this.#client = client;
    this.environment = environment;
    this.#setup = setup;
    this.session = session;
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
    const episode = new Episode(client, environment, setup, session);
    episode.#rememberHere();
    await episode.#look();
    return episode;
  }

  get observation(): Observation {
    return this.moves.at(-1)?.observation ?? this.session.observation;
  }

  /** Sum of the rewards so far. */
  get totalReward(): number {
    return this.moves.reduce((sum, { reward }) => sum + reward, 0);
  }

  get canUndo(): boolean {
    return this.moves.length > 0 && this.#snapshots[this.moves.length - 1] !== undefined;
  }

  /** @throws RequestFailed; `invalid_action`, `episode_over` among others */
  async step(action: Json): Promise<void> {
    await this.#snapshots[this.moves.length];
    const result = await this.#client.json<Schemas['StepResult']>('POST', this.#path('step'), {
      body: { action },
    });
    if (result.step === this.moves.length + 1) this.moves.push({ ...result, action });
    else await this.#catchUp();
    this.#rememberHere();
    await this.#look();
  }

  /** Goes back by one step. */
  async undo(): Promise<void> {
    const before = this.moves.length - 1;
    const snapshot = await this.#snapshots[before];
    if (snapshot === undefined) return;
    const session = await this.#client.json<Session>('POST', this.#path('restore'), {
      body: { snapshot_id: snapshot },
    });
    this.moves.length = before;
    this.#snapshots.length = before + 1;
    this.session = before === 0 ? session : { ...session, observation: this.session.observation };
    await this.#look();
  }

  /** @param seed drawn by the server when absent */
  async reset(seed: number | undefined): Promise<void> {
    await this.#snapshots[this.moves.length];
    const { options } = this.#setup;
    if (this.#snapshotsTaken < MANY_SNAPSHOTS) {
      this.session = await this.#client.json<Session>('POST', this.#path('reset'), {
        body: { ...(seed !== undefined && { seed }), ...(!isEmpty(options) && { options }) },
      });
    } else {
      const old = this.session.session_id;
      this.session = await create(this.#client, this.environment.env_id, this.#setup, seed);
      this.#snapshotsTaken = 0;
      await close(this.#client, old);
    }
    this.moves = [];
    this.#snapshots = [];
    this.#rememberHere();
    await this.#look();
  }

  /** Takes actions that were taken before, unseen. @throws RequestFailed when one is refused */
  async repeat(actions: readonly Json[]): Promise<void> {
    await this.#snapshots[this.moves.length];
    const { session_id } = this.session;
    const replies = await this.#client.batch(actions.map(action => ({ op: 'step', session_id, action })));
    for (const reply of replies) {
      if ('error' in reply) throw new RequestFailed(reply.error);
    }
    await this.#catchUp();
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

  /** True if it takes no more actions. */
  get isOver(): boolean {
    const last = this.moves.at(-1);
    return last !== undefined && (last.terminated || last.truncated) && !this.#goesOn;
  }

  /** Under the wrapper that begins the next episode by itself nothing ends. */
  get #goesOn(): boolean {
    return this.#setup.wrappers.some(({ name }) => name === 'auto_reset');
  }

  /** True if every setting is the default, so that results are comparable. */
  get isDefault(): boolean {
    const { config, wrappers, options } = this.#setup;
    return isEmpty(config) && wrappers.length === 0 && isEmpty(options);
  }

  get setup(): PlaySetup {
    return this.#setup;
  }

  /** Asks how the state is as plain data. */
  async #look(): Promise<void> {
    this.structured = await this.#client.json('GET', this.#path('render?mode=structured'), { quiet: true });
  }

  /** The episode so far as JSON Lines. */
  trajectory(): Promise<string> {
    return this.#client.text(this.#path('trajectory'));
  }

  close(): Promise<void> {
    return close(this.#client, this.session.session_id);
  }

  #path(operation: string): string {
    return sessionPath(this.session.session_id, operation);
  }

  /** Takes over what somebody else did in this session, by curl for example. */
  async #catchUp(): Promise<void> {
    const [first, ...steps] = await readTrajectory(this.#client, this.session.session_id);
    const session = await this.#client.json<SessionDetail>('GET', this.#path(''), { quiet: true });
    this.session = { ...session, observation: first.observation };
    this.moves = steps.map(moveOf);
    this.#snapshots = [];
  }

  #rememberHere(): void {
    if (!this.environment.capabilities.snapshot) {
      this.undoProblem = 'The environment holds more than its state, so there is no way back.';
      return;
    }
    this.#snapshotsTaken++;
    const snapshots = this.#snapshots;
    const here = this.moves.length;
    snapshots[here] = this.#client
      .json<Schemas['Snapshot']>('POST', this.#path('snapshot'), { quiet: true })
      .then(
        ({ snapshot_id }) => {
          this.undoProblem = undefined;
          return snapshot_id;
        },
        (error: Error) => {
          this.undoProblem = error.message;
          delete snapshots[here];
          return undefined;
        },
      );
  }
}

/** The episode of a session from its reset on. */
async function readTrajectory(client: Client, sessionId: string): Promise<TrajectoryRecord[]> {
  const lines = await client.text(sessionPath(sessionId, 'trajectory'), { quiet: true });
  return lines
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line));
}

/** A record of a trajectory as a step that was taken. */
export function moveOf(record: Pick<TrajectoryRecord, keyof PlayedStep>): PlayedStep {
  const { action, observation, reward = 0, terminated = false, truncated = false, info } = record;
  return { action: action as Json, observation, reward, terminated, truncated, info };
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

const isEmpty = (object: object): boolean => Object.keys(object).length === 0;
