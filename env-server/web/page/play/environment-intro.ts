import type { Json } from '../../../../shared/json.ts';
import { h } from '../../../../shared/web/element.ts';
import type { Client } from '../client/client.ts';
import type { Environment } from '../client/wire.ts';
import { aboutEnvironment, rulesOf } from '../components/about-environment.ts';
import { Episode, type PlaySetup } from './episode.ts';
import { SetupPanel } from './setup-panel.ts';
import { StartBar } from './start-bar.ts';

/** What is to be played, and from where. */
export interface PlayRequest {
  readonly envId: string;
  readonly preset?: string;
  readonly seed?: number;
  readonly setup?: PlaySetup;
  /** Taken at once: an episode that was begun elsewhere. */
  readonly actions?: readonly Json[];
}

interface EnvironmentIntroOptions {
  /** The page's title, which focus may be on. */
  readonly title: HTMLElement;
  /** Something was set that asks for a new session. */
  readonly startOver: (seed: number | undefined) => void;
  readonly reset: (seed: number | undefined) => void;
}

/** All about an environment before it is played: its task and rules, preset, seed, settings. Opens its sessions. */
export class EnvironmentIntro {
  readonly #client: Client;
  readonly #envId: string;
  readonly #panel: SetupPanel;
  readonly #bar: StartBar;
  readonly element: HTMLElement;

  constructor(
    client: Client,
    environment: Environment,
    { preset, seed, setup }: PlayRequest,
    { title, startOver, reset }: EnvironmentIntroOptions,
  ) {
    this.#client = client;
    this.#envId = environment.env_id;
    this.#panel = new SetupPanel(client, environment, () => startOver(this.#bar.seed));
    this.#panel.preset = preset;
    if (setup) this.#panel.adopt(setup);
    this.#bar = new StartBar(environment, {
      choose: name => {
        this.#panel.preset = name;
        startOver(this.#bar.seed);
      },
      reset,
    });
    this.#bar.preset = preset ?? (setup?.config.preset as string | undefined);
    this.#bar.seed = seed;
    this.element = h(
      'div',
      { class: 'lobby' },
      aboutEnvironment(environment, title),
      this.#bar.element,
      h('div', { class: 'folded' }, rulesOf(environment), this.#panel.element),
    );
  }

  /** Where this start can be found again. */
  get address() {
    return { view: 'play' as const, envId: this.#envId, preset: this.#bar.preset, seed: this.#bar.seed };
  }

  /** The seed of the episode that is played. */
  set seed(seed: number | undefined) {
    this.#bar.seed = seed;
  }

  /**
   * A new session with what is set; undefined when the settings were refused, which they tell themselves.
   * @throws RequestFailed for everything else
   */
  async open(seed: number | undefined, actions: readonly Json[] = []): Promise<Episode | undefined> {
    const environment = await this.#panel.check();
    if (!environment) return undefined;
    let episode: Episode;
    try {
      episode = await Episode.begin(this.#client, environment, this.#panel.setup, seed);
    } catch (error) {
      this.#panel.refuse(error);
      return undefined;
    }
    if (actions.length > 0) await episode.repeat(actions);
    return episode;
  }
}
