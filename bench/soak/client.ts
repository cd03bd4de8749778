import { setTimeout as delay } from 'node:timers/promises';
import type { Random } from '../../shared/random.ts';
import type { PlayerHistory, SoakCounters } from './evidence.ts';
import { type Game, Player } from './player.ts';
import type { Item, Transport } from './transport.ts';

/** Chances in each round. */
const DROPS = 0.01;
const DIES = 0.002;
/** Pause after a failure that passes. */
const PAUSE_MS = 50;

/** Surroundings of a client. */
export interface Surroundings {
  readonly counters: SoakCounters;
  /** Changes whenever the server is ended, and when it is back: in between connections break. */
  fault(): { readonly number: number; readonly away: boolean };
  /** Something is not as it must be. */
  violate(what: string, history?: PlayerHistory): unknown;
  onDrop(): unknown;
  onDeath(): unknown;
}

/** Some players on one connection, which they cut now and then; some of them die and leave their sessions behind. */
export class SoakClient {
  readonly #name: string;
  readonly #transport: Transport;
  readonly #games: readonly Game[];
  readonly #random: Random;
  readonly #surroundings: Surroundings;
  #players: Player[] = [];
  #lives = 0;

  constructor(
    name: string,
    transport: Transport,
    games: readonly Game[],
    random: Random,
    surroundings: Surroundings,
  ) {
    this.#name = name;
    this.#transport = transport;
    this.#games = games;
    this.#random = random;
    this.#surroundings = surroundings;
    this.#live();
  }

  #live(): void {
    this.#lives++;
    this.#players = this.#games.map(
      (game, i) =>
        new Player(`${this.#name}.${this.#lives}.${i}`, game, this.#random, this.#surroundings.counters),
    );
  }

  /** Plays until `ending` returns true, then closes its sessions; gives up when `over` returns true. */
  async run(ending: () => boolean, over: () => boolean): Promise<void> {
    while (!over()) {
      if (ending()) for (const player of this.#players) player.end();
      const playing = this.#players.filter(({ done }) => !done);
      if (playing.length === 0) break;
      await this.#round(playing, ending());
    }
    this.#transport.drop();
  }

  async #round(playing: readonly Player[], ending: boolean): Promise<void> {
    const { violate, fault, onDrop, onDeath } = this.#surroundings;
    let dropped = false;
    const before = fault();
    const items: Item[] = playing.map(player => player.next());
    const asking = this.#transport.ask(items);
    if (!ending && this.#random.chance(DROPS)) {
      await delay(this.#random.integer(5));
      dropped = true;
      onDrop();
      this.#transport.drop();
    }
    let pause = false;
    try {
      const replies = await asking;
      playing.forEach((player, i) => {
        const reply = replies[i];
        const now = fault();
        if (!reply && !dropped && !now.away && now.number === before.number) {
          const { name, closeCode = 'no close code' } = this.#transport;
          violate(`${name}: a connection broke although the server was there (${closeCode})`);
        }
        pause ||= !reply?.ok;
        this.#take(player, replies[i]);
      });
    } catch (error) {
      violate(`${this.#transport.name}: ${(error as Error).message}`);
      for (const player of playing) player.abandon();
      this.#live();
    }
    if (!ending && this.#random.chance(DIES)) {
      onDeath();
      this.#transport.drop();
      this.#live();
    }
    if (pause) await delay(PAUSE_MS);
  }

  #take(player: Player, reply: Parameters<Player['take']>[0]): void {
    try {
      player.take(reply);
    } catch (error) {
      this.#surroundings.violate(`${this.#transport.name}: ${(error as Error).message}`, player.history);
      // Its record is no longer needed.
      player.abandon();
      const at = this.#players.indexOf(player);
      this.#lives++;
      this.#players[at] = new Player(
        `${this.#name}.${this.#lives}.${at}`,
        this.#games[at],
        this.#random,
        this.#surroundings.counters,
      );
    }
  }
}
