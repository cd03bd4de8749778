import { fill, h } from '../../components/element.ts';
import type { Address, WatchAddress } from '../address.ts';
import type { Client } from '../client/client.ts';
import type { View } from '../view.ts';
import { SessionReplay } from './session-replay.ts';
import { SessionWall } from './session-wall.ts';

/** A wall of live sessions, or one of them. */
export class WatchView implements View<'watch'> {
  readonly element = h('div', { class: 'watch-view' });
  readonly #client: Client;
  readonly #wall: SessionWall;
  #replay: SessionReplay | undefined;

  /** @param onaddress the wall shows other sessions */
  constructor(client: Client, onaddress: (address: Address) => void) {
    this.#client = client;
    this.#wall = new SessionWall(client, onaddress);
  }

  async show(address: WatchAddress, first: boolean): Promise<void> {
    const { sessionId } = address;
    this.hide();
    if (sessionId === undefined) {
      fill(this.element, this.#wall.element);
      this.#wall.start(address);
    } else {
      this.#replay = new SessionReplay(this.#client, sessionId);
      fill(this.element, this.#replay.element);
      this.#replay.start();
    }
    if (!first) this.element.querySelector('h1')?.focus({ preventScroll: true });
  }

  hide(): void {
    this.#wall.stop();
    this.#replay?.stop();
    this.#replay = undefined;
  }
}
