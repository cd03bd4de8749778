import type { Json } from '../../../shared/json.ts';
import { fill, h } from '../../components/element.ts';
import type { PlayAddress } from '../address.ts';
import type { Client } from '../client/client.ts';
import type { Environment, WrapperChoice } from '../client/wire.ts';
import { aboutEnvironment, rulesOf } from '../components/about-environment.ts';
import { DEFAULT_SETUP, Episode, type PlaySetup } from './episode.ts';
import { SetupPanel } from './setup-panel.ts';
import { StartBar } from './start-bar.ts';

/** Environment to play, and the start of its episode. */
export type PlayRequest = Omit<PlayAddress, 'view' | 'envId'> & { readonly envId: string };

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
  readonly #title: HTMLElement;
  readonly #about = h('div', {});
  readonly #rules = h('div', {});
  readonly element = h('div', { class: 'stack intro' });
  /** Preset, seed, and what begins an episode. */
  readonly start = h('div', { class: 'start-place' });
  /** Rules and settings, folded away. */
  readonly more = h('div', { class: 'row folded' });
  /** The setup and the seed of the episode that is played; what the fields say may be half written. */
  #played = DEFAULT_SETUP;
  #seed: number | undefined;

  constructor(
    client: Client,
    environment: Environment,
    request: PlayRequest,
    { title, startOver, reset }: EnvironmentIntroOptions,
  ) {
    this.#client = client;
    this.#envId = environment.env_id;
    this.#title = title;
    this.#panel = new SetupPanel(client, environment, () => startOver(this.#bar.takeSeed()));
    this.#panel.adopt(setupOf(request));
    this.#bar = new StartBar(environment, {
      choose: name => {
        this.#panel.preset = name;
        startOver(this.#bar.takeSeed());
      },
      reset,
    });
    this.#bar.preset = presetOf(request);
    this.#bar.seed = request.seed;
    this.describe(environment);
    fill(this.element, this.#about);
    fill(this.start, this.#bar.element);
    fill(this.more, this.#rules, this.#panel.element);
  }

  /** Describes the task under the configuration that is played. */
  describe(environment: Environment): void {
    fill(this.#about, aboutEnvironment(environment, this.#title));
    fill(this.#rules, rulesOf(environment));
  }

  /** Address of this start. */
  get address(): PlayAddress {
    const { config, wrappers, options, format } = this.#played;
    const { preset, ...changes } = config;
    return {
      view: 'play',
      envId: this.#envId,
      preset: preset as string | undefined,
      seed: this.#seed,
      config: changes,
      wrappers: wrappers as unknown as Json[],
      options,
      format: format === DEFAULT_SETUP.format ? undefined : format,
    };
  }

  /** The seed of the episode that is played. A new one goes into its field; the same leaves what is typed there. */
  set seed(seed: number | undefined) {
    if (seed === this.#seed) return;
    this.#seed = seed;
    this.#bar.seed = seed;
  }

  /**
   * A new session with these settings; undefined when they were refused, which their panel shows.
   * @throws RequestFailed for everything else
   */
  async open(seed: number | undefined, actions: readonly Json[] = []): Promise<Episode | undefined> {
    const checked = await this.#panel.check();
    if (!checked) return undefined;
    const { environment, setup } = checked;
    let episode: Episode;
    try {
      episode = await Episode.begin(this.#client, environment, setup, seed);
    } catch (error) {
      this.#panel.refuse(error);
      return undefined;
    }
    if (actions.length > 0) await episode.repeat(actions);
    this.#played = setup;
    return episode;
  }
}

/** Preset of a request; the configuration may also name it, as in a run's settings. */
function presetOf({ preset, config }: PlayRequest): string | undefined {
  return preset ?? (typeof config?.preset === 'string' ? config.preset : undefined);
}

function setupOf({ preset, config = {}, wrappers = [], options = {}, format }: PlayRequest): PlaySetup {
  return {
    config: preset === undefined ? config : { preset, ...config },
    wrappers: wrappers as unknown as WrapperChoice[],
    options,
    format: format ?? DEFAULT_SETUP.format,
  };
}
