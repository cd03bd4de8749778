import type { Json } from '../../shared/json.ts';
import { SerialQueue } from '../../shared/scheduling/serial-queue.ts';
import { RequestFailed } from '../components/request.ts';
import { Store } from '../components/store.ts';
import { Episode } from './episode.ts';
import { stepReport } from './format.ts';
import {
  canUndo,
  type EpisodeState,
  isOver,
  NOTHING_PLAYED,
  type PlayEvent,
  type PlayStart,
  type PlayState,
  playStartOf,
  reducePlay,
  SPEEDS,
  totalReward,
} from './session-state.ts';
import { type PlayRequest, Setup } from './setup.ts';
import type { Environment, EnvironmentServer } from './wire.ts';

/** Most waiting actions. */
const MAX_WAITING = 32;
/** Most steps that are taken again to explain a failure. */
const MAX_EXPLAINED = 100;
/** Milliseconds without a reply after which the page says that it waits. */
const PENDING_AFTER_MS = 250;

/** Problems of a session that no longer exists. */
const GONE: ReadonlySet<string | undefined> = new Set([
  'unknown_session',
  'session_expired',
  'session_closed',
]);

/** Actions from the start to where a visitor plays on, and their chance. */
type Past = Pick<PlayRequest, 'dynamicsSeed' | 'actions' | 'reseeds'>;

/** The next action of a player after these steps; undefined when nothing is left for it. */
export type OwnPlayer = (moves: EpisodeState['moves']) => Promise<Json | undefined>;

/** The visitor's game: opens sessions, queues actions, and keeps the state that the view shows. */
export class PlaySession {
  readonly #server: EnvironmentServer;
  readonly store: Store<PlayState, PlayEvent> = new Store(reducePlay, NOTHING_PLAYED);
  setup: Setup | undefined;
  /** Announces a text to screen readers. */
  announce: (text: string) => void = () => {};
  /** Called after each change with the address of the current episode. */
  onchange: (start: PlayStart) => void = () => {};
  /** Players besides the environment's references. */
  readonly players = new Map<string, OwnPlayer>();
  /** Steps that Undo does not take back: they were taken elsewhere. */
  floor = 0;
  #episode: Episode | undefined;
  readonly #queue = new SerialQueue();
  /** Grows with each start; results of earlier work are then ignored. */
  #turn = 0;
  /** Grows whenever waiting actions are dropped. */
  #drops = 0;
  /** Sessions being opened. */
  #beginning = 0;
  /** Number of pending requests that the visitor waits for. */
  #underWay = 0;
  /** Grows with each stop; a policy's pending step is then ignored. */
  #stops = 0;
  /** Steps of a policy that wait for each other, and their number. */
  #plans = new SerialQueue();
  #waitingPlans = 0;

  constructor(server: EnvironmentServer) {
    this.#server = server;
  }

  get canUndo(): boolean {
    const { episode } = this.#state;
    return episode !== undefined && episode.moves.length > this.floor && canUndo(episode);
  }

  get #state(): PlayState {
    return this.store.state;
  }

  /** Opens a session of an environment and moves the focus to its board. */
  async open(request: PlayRequest): Promise<void> {
    this.close();
    const turn = this.#turn;
    this.setup = undefined;
    this.store.dispatch({ type: 'opening', envId: request.envId });
    try {
      const environment = await this.#server.run<Environment>('get_environment', { env_id: request.envId });
      if (turn !== this.#turn) return;
      this.setup = new Setup(this.#server, environment, request);
      this.store.dispatch({ type: 'described', environment });
      await this.#begin(request.seed, request);
    } catch (problem) {
      if (turn === this.#turn) this.store.dispatch({ type: 'refused', problem });
    }
    if (turn !== this.#turn) return;
    this.store.dispatch({ type: 'opened' });
    this.focus();
  }

  /** Ends the episode and its session. */
  close(): void {
    this.#turn++;
    this.#drops++;
    this.stop();
    const episode = this.#episode;
    const isGone = this.#state.isGone;
    this.#episode = undefined;
    // The session would expire anyway, and the visitor has left it.
    if (!isGone) episode?.close().catch(() => {});
    this.store.dispatch({ type: 'closed' });
  }

  /** To where it is played, or to the title of what cannot be. */
  focus(): void {
    this.store.dispatch({ type: 'focus' });
  }

  /** Replaces the session by a new one with the current settings. */
  async startOver(seed: number | undefined): Promise<void> {
    const turn = ++this.#turn;
    this.#dropWaiting();
    this.stop();
    const old = this.#state.isGone ? undefined : this.#episode;
    this.store.dispatch({ type: 'starting over' });
    try {
      const begun = this.#begin(seed);
      // Later actions go to the new episode.
      this.#queue.run(() => Promise.allSettled([begun]));
      await begun;
      if (turn === this.#turn && old !== this.#episode) await old?.close();
    } catch (problem) {
      if (turn === this.#turn) this.store.dispatch({ type: 'refused', problem });
    }
  }

  async #begin(seed: number | undefined, past: Past = {}): Promise<void> {
    const { setup } = this;
    const turn = this.#turn;
    this.#beginning++;
    try {
      const episode = setup && (await this.#ask(setup, seed, past));
      if (turn === this.#turn && episode) this.#take(episode);
      else await episode?.close();
    } finally {
      this.#beginning--;
    }
  }

  /** A new session; undefined when the settings were rejected, which their fields show. */
  async #ask(setup: Setup, seed: number | undefined, past: Past): Promise<Episode | undefined> {
    const checked = await setup.check();
    if (!checked) return undefined;
    let episode: Episode;
    try {
      const start = { seed, dynamicsSeed: past.dynamicsSeed };
      episode = await Episode.begin(this.#server, checked.environment, checked.setup, start);
    } catch (error) {
      setup.refuse(error);
      return undefined;
    }
    const { actions = [], reseeds = [] } = past;
    if (actions.length + reseeds.length > 0) await episode.repeat(actions, reseeds);
    return episode;
  }

  #take(episode: Episode): void {
    this.#episode = episode;
    episode.onsnapshot = () => {
      if (episode === this.#episode) this.store.dispatch({ type: 'remembered', episode: episode.state });
    };
    this.store.dispatch({ type: 'begun', episode: episode.state });
    this.#changed(episode);
  }

  #changed({ state }: Episode): void {
    this.setup?.store.dispatch({ type: 'played', seed: state.session.seed ?? undefined });
    this.onchange(playStartOf(state));
  }

  /** Starts the next episode after an end, and moves the focus to its board. */
  async startAgain(seed: number | undefined): Promise<void> {
    await this.reset(seed);
    this.focus();
  }

  async reset(seed: number | undefined): Promise<void> {
    if (this.#state.isGone || !this.#episode || this.#beginning > 0) return this.startOver(seed);
    this.stop();
    const done = await this.#queue.run(() => this.#attempt(episode => episode.reset(seed)));
    if (!done) return;
    this.announce(`A new episode with seed ${this.#episode?.state.session.seed ?? 'none'}.`);
  }

  /** Takes an action after the earlier ones; true while the episode continues. */
  act(action: Json): Promise<boolean> {
    const { episode, waiting } = this.#state;
    // A key that comes late is not a mistake.
    if (!episode || isOver(episode)) return Promise.resolve(false);
    if (waiting.length >= MAX_WAITING) {
      this.announce(`${MAX_WAITING} actions wait already: this one was left out.`);
      return Promise.resolve(false);
    }
    const [turn, drops] = [this.#turn, this.#drops];
    this.store.dispatch({ type: 'queued', action });
    return this.#queue.run(async () => {
      // Dropped with the others, or meant for an episode that has ended.
      if (drops !== this.#drops || turn !== this.#turn) return false;
      this.store.dispatch({ type: 'taken' });
      return this.#step(action);
    });
  }

  async #step(action: Json): Promise<boolean> {
    const before = this.#state.episode;
    if (!before || isOver(before)) return false;
    if (!(await this.#attempt(episode => episode.step(action)))) {
      this.#dropWaiting();
      return false;
    }
    const { episode } = this.#state;
    if (!episode) return false;
    if (isOver(episode)) {
      this.#dropWaiting();
      this.#explain(episode);
    }
    const { environment, moves } = episode;
    this.announce(stepReport(environment, moves, totalReward(episode)));
    const last = moves.at(-1);
    return last !== undefined && moves.length !== before.moves.length && !last.terminated && !last.truncated;
  }

  /** Finds out what would have been better than the last action of a failure; without it the end says less. */
  #explain({ environment, moves }: EpisodeState): void {
    const [best] = environment.references;
    if (best === undefined || best.name === 'random' || moves.at(-1)?.info.success === true) return;
    if (moves.length > MAX_EXPLAINED) return;
    this.#episode?.explain(best.name).catch(() => {});
  }

  #dropWaiting(): void {
    this.#drops++;
    this.store.dispatch({ type: 'dropped' });
  }

  async undo(): Promise<void> {
    this.stop();
    // Waiting actions are taken back first.
    this.#dropWaiting();
    const undone = await this.#queue.run(
      async () => this.canUndo && this.#attempt(episode => episode.undo()),
    );
    if (undone) this.announce(`Back at step ${this.#state.episode?.moves.length}.`);
  }

  /** Changes the episode and shows its new state, or the error. */
  async #attempt(work: (episode: Episode) => Promise<void>): Promise<boolean> {
    const episode = this.#episode;
    if (!episode) return false;
    const done = this.#wait();
    try {
      await work(episode);
    } catch (error) {
      if (episode === this.#episode) this.#fail(error);
      return false;
    } finally {
      done();
    }
    if (episode !== this.#episode) return false;
    this.store.dispatch({ type: 'changed', episode: episode.state });
    this.#changed(episode);
    return true;
  }

  #fail(problem: unknown): void {
    const isGone = problem instanceof RequestFailed && GONE.has(problem.problem.code);
    this.store.dispatch({ type: 'failed', problem, isGone });
  }

  /**
   * Says that the page waits, if it takes long.
   * @returns call it when the work is done
   */
  #wait(): () => void {
    this.#underWay++;
    const timer = setTimeout(() => this.store.dispatch({ type: 'slow', isSlow: true }), PENDING_AFTER_MS);
    return () => {
      clearTimeout(timer);
      this.#underWay--;
      if (this.#underWay === 0) this.store.dispatch({ type: 'slow', isSlow: false });
    };
  }

  /** Lets the chosen policy take one step, after those before it; true while the episode continues. */
  playOne(): Promise<boolean> {
    const stops = this.#stops;
    if (this.#waitingPlans >= MAX_WAITING) return Promise.resolve(false);
    this.#waitingPlans++;
    return this.#plans
      .run(() => this.#playOne(stops))
      .finally(() => {
        if (stops === this.#stops) this.#waitingPlans--;
      });
  }

  async #playOne(stops: number): Promise<boolean> {
    // Actions that wait change the state that it plans for.
    await this.#queue.idle;
    const { policy } = this.#state;
    const episode = this.#episode;
    if (stops !== this.#stops || policy === undefined || !episode) return false;
    try {
      const { moves } = episode.state;
      const own = this.players.get(policy);
      const action = await (own ? own(moves) : episode.plan(policy));
      // Such a player may take long, and its action was meant for another state then.
      if (stops !== this.#stops || (own && moves !== episode.state.moves)) return false;
      if (action !== undefined) return await this.act(action);
      this.announce(`The policy ${policy} has nothing left to do.`);
    } catch (error) {
      if (episode === this.#episode) this.#fail(error);
    }
    return false;
  }

  /** Lets the chosen policy play to the end. */
  async playOn(): Promise<void> {
    const stops = this.#stops;
    this.store.dispatch({ type: 'policy', isPolicyPlaying: true });
    while (stops === this.#stops && (await this.playOne()))
      await new Promise(done => setTimeout(done, SPEEDS[this.#state.speed]));
    if (stops === this.#stops) this.stop();
  }

  /** Stops the policy. */
  stop(): void {
    this.#stops++;
    this.#plans = new SerialQueue();
    this.#waitingPlans = 0;
    if (this.#state.isPolicyPlaying) this.store.dispatch({ type: 'policy', isPolicyPlaying: false });
  }
}
