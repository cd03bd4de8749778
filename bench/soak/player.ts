import type { ProblemCode, ProblemDocument } from '../../env-server/problems.ts';
import type { Json, JsonObject } from '../../shared/json.ts';
import type { Random } from '../../shared/random.ts';
import { badRequests, NOBODY } from './bad-requests.ts';
import { AGAIN, GONE, OF_SERVICE, OPENING, type PlayerHistory, type SoakCounters } from './evidence.ts';
import {
  begun,
  type Episode,
  isOver,
  requireSame,
  requireSteps,
  requireTrajectory,
  type TakenStep,
  withStep,
} from './record.ts';
import type { Item, Reply } from './transport.ts';

/** Game of a player. */
export interface Game {
  readonly create: JsonObject;
  readonly actions: readonly Json[];
  /** The same seed and actions give the same episode. */
  readonly repeatable: boolean;
}

interface Pending {
  /** It asks where the session stands after a kill, with something else to be asked again. */
  readonly looksAgain?: true;
  readonly item: Item;
  readonly take: (result: JsonObject) => void;
  /** The problem that is the right answer. */
  readonly refusal?: ProblemCode;
}

/** An episode that is played once more. */
interface Replay {
  readonly episode: Episode;
  sessionId: string;
  readonly steps: TakenStep[];
}

/** Operations that begin another episode. */
const BEGIN = new Set(['reset', 'restore']);
const MAX_STEPS = 60;
/** Most requests and replies that a player remembers, and characters of each. */
const MAX_REMEMBERED = 200;
const MAX_REMEMBERED_LENGTH = 600;

/**
 * Plays one session after another with all operations, under a request key each so that it may ask again after any
 * failure, and compares every reply with what it has seen before.
 */
export class Player {
  readonly #game: Game;
  readonly #random: Random;
  readonly #counters: SoakCounters;
  readonly #name: string;
  #asked = 0;
  #pending: Pending | undefined;
  #sessionId = '';
  #askedAt = 0;
  /** When what is in progress was asked for first. */
  #firstAskedAt = 0;
  /** When what was last done was asked for. */
  #usedAt = 0;
  /** Kills after which it has looked where its session stands. */
  #kills = 0;
  /** Kills when what is in progress was asked for first. */
  #killsBefore = 0;
  #episode: Episode | undefined;
  #snapshots: { readonly id: string; readonly episode: Episode }[] = [];
  #failed = false;
  /** Sessions to be closed that nobody plays. */
  readonly #spare: string[] = [];
  #replay: Replay | undefined;
  #ending: 'no' | 'wanted' | 'done' = 'no';
  /** Last requests and replies, with their times. */
  readonly #lines: string[] = [];

  /** @param name differs from player to player */
  constructor(name: string, game: Game, random: Random, counters: SoakCounters) {
    this.#name = name;
    this.#game = game;
    this.#random = random;
    this.#counters = counters;
  }

  /** It has closed what it had and asks for nothing more. */
  get done(): boolean {
    return this.#ending === 'done';
  }

  /** Lets it close its sessions and end. */
  end(): void {
    if (this.#ending === 'no') this.#ending = 'wanted';
  }

  /** It goes away without closing anything. */
  abandon(): void {
    this.#ending = 'done';
  }

  /** Next request: the same again while it has no answer. */
  next(): Item {
    if (!this.#pending) {
      this.#killsBefore = this.#counters.kills;
      this.#firstAskedAt = performance.now();
    }
    const pending = this.#pending ?? this.#choose();
    this.#pending =
      this.#kills < this.#counters.kills && this.#isOwn(pending) ? this.#afterKill(pending) : pending;
    this.#askedAt = performance.now();
    this.#remember('asks', this.#pending.item);
    return this.#pending.item;
  }

  /** Its session, requests and replies: they help to find the cause of a violation. */
  get history(): PlayerHistory {
    return { sessionId: this.#sessionId, lines: this.#lines };
  }

  #remember(what: string, value: unknown): void {
    const text = (JSON.stringify(value) ?? 'nothing').slice(0, MAX_REMEMBERED_LENGTH);
    this.#lines.push(`${new Date().toISOString()} ${this.#name} ${what} ${text}`);
    if (this.#lines.length > MAX_REMEMBERED) this.#lines.shift();
  }

  /** True if a request is about the session that it plays. */
  #isOwn({ item: { session_id: id } }: Pending): boolean {
    return id !== undefined && (id === this.#sessionId || id === this.#replay?.sessionId);
  }

  /** Request after a lost server: reads the session; a step may be sent at once, because its key makes it happen once. */
  #afterKill(pending: Pending): Pending {
    this.#kills = this.#counters.kills;
    if (pending.looksAgain) return pending;
    const { op } = pending.item;
    // What is closed already cannot be looked at.
    const atOnce = op === 'close' || (op === 'step' && this.#random.chance(0.5));
    return atOnce ? pending : this.#lookAgain(pending);
  }

  /**
   * Takes the reply to what it asked.
   * @throws Error when it is not what it should be
   */
  take(reply: Reply): void {
    this.#remember('hears', reply);
    const pending = this.#pending;
    if (!pending) throw new Error(`${this.#name} was answered unasked`);
    if (!reply) {
      this.#counters.retries++;
      return;
    }
    if (!reply.ok) {
      this.#refused(pending, reply.error);
      return;
    }
    if (pending.refusal) {
      throw new Error(`${JSON.stringify(pending.item)} was accepted; ${pending.refusal} was due`);
    }
    this.#pending = undefined;
    this.#usedAt = this.#askedAt;
    pending.take(reply.result);
  }

  #refused(pending: Pending, problem: ProblemDocument): void {
    const { code } = problem;
    const { problems } = this.#counters;
    problems.set(code, (problems.get(code) ?? 0) + 1);
    if (code === pending.refusal || pending.item.session_id === NOBODY) {
      this.#pending = undefined;
      return;
    }
    if (AGAIN.has(code)) {
      this.#counters.retries++;
      return;
    }
    // It was closed, and who could have said so was killed.
    const isClosed = pending.item.op === 'close' && this.#killsBefore < this.#counters.kills;
    if (code === 'unknown_session' && isClosed) {
      this.#pending = undefined;
      pending.take({});
      return;
    }
    if (this.#mayBeGone(code)) {
      this.#counters.expired++;
      if (pending.item.session_id === this.#spare[0]) {
        this.#spare.shift();
        this.#pending = undefined;
      } else this.#forget();
      return;
    }
    const mayHaveExpired = performance.now() - this.#firstAskedAt > this.#counters.ttlMs;
    if (code === 'request_key_expired' && OPENING.has(pending.item.op) && mayHaveExpired) {
      this.#counters.expired++;
      this.#pending = undefined;
      return;
    }
    if (OF_SERVICE.has(code) && !this.#game.repeatable) {
      this.#pending = undefined;
      this.#failed = this.#sessionId !== '';
      return;
    }
    throw new Error(`${JSON.stringify(pending.item)}: ${code}: ${problem.detail}`);
  }

  #mayBeGone(code: ProblemCode): boolean {
    // Later on nobody remembers that it has expired.
    return GONE.has(code) && performance.now() - this.#usedAt > this.#counters.ttlMs;
  }

  /** Everything of its session is gone. */
  #forget(): void {
    this.#pending = undefined;
    this.#sessionId = '';
    this.#episode = undefined;
    this.#snapshots = [];
    this.#replay = undefined;
    this.#failed = false;
    this.#spare.length = 0;
  }

  /** Asks where the session stands, and continues from there. */
  #lookAgain(interrupted: Pending): Pending {
    return {
      item: { op: 'get', session_id: interrupted.item.session_id as string },
      looksAgain: true,
      take: detail => {
        if (interrupted.item.session_id !== this.#sessionId) {
          // The one it was replaying.
          this.#replay = undefined;
          return;
        }
        const known = this.#episode;
        // What was in progress may have been done: its key gives the reply.
        this.#pending = interrupted;
        if (known?.id !== detail.episode_id) {
          if (BEGIN.has(interrupted.item.op)) return;
          throw new Error(
            `the server went from episode ${known?.id} to ${String(detail.episode_id)} by itself`,
          );
        }
        if (Number(detail.step) === known.steps.length + 1 && interrupted.item.op === 'step') return;
        requireSame(known, detail);
      },
    };
  }

  #choose(): Pending {
    const spare = this.#spare[0];
    if (spare !== undefined) return this.#close(spare, () => this.#spare.shift());
    if (this.#replay) return this.#playAgain(this.#replay);
    if (this.#sessionId === '') {
      return this.#ask('create', { ...this.#game.create, ...this.#seed() }, result => {
        this.#sessionId = String(result.session_id);
        this.#begin(result);
      });
    }
    if (this.#ending === 'wanted') return this.#finish();
    const episode = this.#episode!;
    if (this.#failed) return this.#reset();
    if (isOver(episode) || episode.steps.length >= MAX_STEPS) {
      return this.#random.chance(0.3) ? this.#finish() : this.#reset();
    }
    return this.#play(episode);
  }

  #play(episode: Episode): Pending {
    const session = { session_id: this.#sessionId };
    const draw = this.#random.float();
    if (draw < 0.72) return this.#step(episode);
    if (draw < 0.77) return this.#ask('get', session, detail => requireSame(episode, detail), false);
    if (draw < 0.8) return this.#verify(() => undefined);
    if (draw < 0.83) return this.#ask('render', { ...session, mode: 'text' }, () => undefined, false);
    if (draw < 0.86) {
      return this.#ask('snapshot', session, ({ snapshot_id }) => {
        this.#snapshots.push({ id: String(snapshot_id), episode });
      });
    }
    if (draw < 0.89 && this.#snapshots.length > 0) {
      const { id, episode: saved } = this.#snapshots[this.#random.integer(this.#snapshots.length)];
      return this.#ask('restore', { ...session, snapshot_id: id }, result => {
        const restored = { ...saved, id: String(result.episode_id) };
        requireSame(restored, result);
        this.#keep(restored);
      });
    }
    if (draw < 0.91) {
      return this.#ask('clone', session, result => {
        const [clone] = result.sessions as unknown as JsonObject[];
        requireSame({ ...episode, id: String(clone.episode_id) }, clone);
        // Some are left for the server to clear away.
        if (this.#random.chance(0.7)) this.#spare.push(String(clone.session_id));
      });
    }
    if (draw < 0.93) return this.#reset();
    return this.#bad(episode);
  }

  #step(episode: Episode): Pending {
    const { actions } = this.#game;
    const action = actions[this.#random.integer(actions.length)];
    const input = {
      session_id: this.#sessionId,
      action,
      ...(this.#random.chance(0.7) && { expected_step: episode.steps.length + 1 }),
    };
    return this.#ask('step', input, result => {
      this.#counters.steps++;
      this.#keep(withStep(this.#episode!, action, result));
    });
  }

  #bad(episode: Episode): Pending {
    const requests = badRequests(this.#sessionId, this.#game.actions[0], episode.steps.length + 1);
    const [item, refusal] = requests[this.#random.integer(requests.length)];
    return { item, refusal, take: () => undefined };
  }

  #reset(): Pending {
    return this.#ask('reset', { session_id: this.#sessionId, ...this.#seed() }, result => {
      this.#failed = false;
      this.#begin(result);
    });
  }

  #finish(): Pending {
    const episode = this.#episode!;
    return this.#verify(() => {
      const session = this.#sessionId;
      this.#pending = this.#close(session, () => {
        this.#forget();
        if (this.#ending === 'wanted') this.#ending = 'done';
        else if (this.#game.repeatable && episode.seed !== null && this.#random.chance(0.5)) {
          this.#replay = { episode, sessionId: '', steps: [] };
        }
      });
    });
  }

  /** Compares the whole episode with the server's record of it. */
  #verify(then: () => void): Pending {
    const session = { session_id: this.#sessionId };
    return this.#ask(
      'trajectory',
      session,
      ({ records }) => {
        requireTrajectory(this.#episode!, records as unknown as JsonObject[]);
        this.#counters.verified++;
        then();
      },
      false,
    );
  }

  /** Plays an episode again in a separate session. */
  #playAgain(replay: Replay): Pending {
    const { episode, steps } = replay;
    if (replay.sessionId === '') {
      return this.#ask('create', { ...this.#game.create, seed: episode.seed }, result => {
        replay.sessionId = String(result.session_id);
      });
    }
    if (steps.length < episode.steps.length) {
      const { action } = episode.steps[steps.length];
      return this.#ask('step', { session_id: replay.sessionId, action }, result => {
        this.#counters.steps++;
        steps.push(result as unknown as TakenStep);
      });
    }
    return this.#close(replay.sessionId, () => {
      requireSteps(episode, steps, 'the episode played again');
      this.#counters.replayed++;
      this.#replay = undefined;
    });
  }

  #close(session_id: string, then: () => void): Pending {
    return this.#ask('close', { session_id }, then, false);
  }

  #ask(op: string, input: JsonObject, take: Pending['take'], keyed = true): Pending {
    const key: JsonObject = keyed ? { request_key: `${this.#name}-${++this.#asked}` } : {};
    return { item: { op, ...input, ...key }, take };
  }

  #seed(): JsonObject {
    return this.#game.repeatable ? { seed: this.#random.integer(1e9) } : {};
  }

  #begin(result: JsonObject): void {
    this.#keep(begun(result));
  }

  #keep(episode: Episode): void {
    this.#episode = episode;
  }
}
