import type { Json } from '../../../shared/json.ts';
import { h, newId } from '../../components/element.ts';
import type { Environment } from '../client/wire.ts';

/** Pauses between two steps, in milliseconds. */
const SPEEDS = { slow: 900, normal: 350, fast: 90 } as const;

interface Player {
  /** Next action of a policy; undefined when nothing useful is left. */
  plan(policy: string): Promise<Json | undefined>;
  /** Takes an action; false when the episode does not continue. */
  act(action: Json): Promise<boolean>;
  say(text: string): void;
  fail(error: unknown): void;
}

/** Lets a reference policy of the environment play, one step or on and on. */
export class PolicyControls {
  readonly #player: Player;
  readonly #policies: HTMLSelectElement;
  readonly #once: HTMLButtonElement;
  readonly #on: HTMLButtonElement;
  readonly #speeds = h(
    'select',
    { id: newId(), 'aria-label': 'Speed' },
    ...Object.keys(SPEEDS).map(name => h('option', { selected: name === 'normal' }, name)),
  );
  readonly element: HTMLElement;
  #playing = false;
  /** Grows with each stop: what a policy would have done before it comes too late. */
  #stops = 0;

  constructor({ references }: Environment, player: Player) {
    this.#player = player;
    const id = newId();
    this.#policies = h(
      'select',
      { id, 'aria-label': 'Let play' },
      ...references.map(({ name, title }) => h('option', { value: name, title }, name)),
    );
    this.#once = h(
      'button',
      { type: 'button', 'aria-keyshortcuts': '.', onclick: () => this.one() },
      'One step',
      h('kbd', { 'aria-hidden': 'true' }, '.'),
    );
    this.#on = h('button', { type: 'button', onclick: () => (this.#playing ? this.stop() : this.#play()) });
    this.element =
      references.length === 0
        ? h('p', { class: 'hint' }, 'The environment has no reference policy to play it.')
        : h(
            'div',
            { class: 'row policy', role: 'group', 'aria-label': 'Reference policy' },
            h('span', { class: 'pair' }, h('label', { for: id }, 'Let play'), this.#policies),
            this.#once,
            this.#on,
            h('span', { class: 'pair' }, h('label', { for: this.#speeds.id }, 'Speed'), this.#speeds),
          );
    this.stop();
  }

  /** One step. */
  one(): Promise<boolean> {
    return this.#policies.length > 0 ? this.#step() : Promise.resolve(false);
  }

  stop(): void {
    this.#playing = false;
    this.#stops++;
    this.#on.textContent = 'Play on';
  }

  get #pauseMs(): number {
    return SPEEDS[this.#speeds.value as keyof typeof SPEEDS];
  }

  async #play(): Promise<void> {
    this.#playing = true;
    this.#on.textContent = 'Stop';
    while (this.#playing && (await this.#step())) await new Promise(done => setTimeout(done, this.#pauseMs));
    this.stop();
  }

  async #step(): Promise<boolean> {
    const policy = this.#policies.value;
    const stops = this.#stops;
    try {
      const action = await this.#player.plan(policy);
      if (stops !== this.#stops) return false;
      if (action !== undefined) return await this.#player.act(action);
      this.#player.say(`The policy ${policy} has nothing left to do.`);
    } catch (error) {
      this.#player.fail(error);
    }
    return false;
  }
}
