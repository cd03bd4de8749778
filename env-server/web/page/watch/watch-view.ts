import { fill, h } from '../../../../shared/web/element.ts';
import type { Address } from '../address.ts';
import type { Client } from '../client/client.ts';
import type { PlayRequest } from '../play/environment-intro.ts';
import type { View } from '../view.ts';
import { SessionList } from './session-list.ts';
import { SessionReplay } from './session-replay.ts';

/** The open sessions, and one of them at a time. */
export class WatchView implements View<'watch'> {
  readonly element = h('div', { class: 'watch-view' });
  readonly #client: Client;
  readonly #list: SessionList;
  readonly #playOn: (request: PlayRequest) => void;
  #replay: SessionReplay | undefined;

  constructor(client: Client, playOn: (request: PlayRequest) => void) {
    this.#client = client;
    this.#list = new SessionList(client);
    this.#playOn = playOn;
  }

  async show({ sessionId }: Address & { view: 'watch' }, first: boolean): Promise<void> {
    this.hide();
    if (sessionId === undefined) {
      fill(this.element, this.#list.element);
      this.#list.start();
    } else {
      this.#replay = new SessionReplay(this.#client, sessionId, this.#playOn);
      fill(this.element, this.#replay.element);
      this.#replay.start();
    }
    if (!first) this.element.querySelector('h1')?.focus();
  }

  hide(): void {
    this.#list.stop();
    this.#replay?.stop();
    this.#replay = undefined;
  }
}
