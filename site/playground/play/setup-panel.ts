import type { JsonObject } from '../../../shared/json.ts';
import { h, newId } from '../../components/element.ts';
import { type Client, RequestFailed } from '../client/client.ts';
import type { Environment, Violation, WrapperChoice } from '../client/wire.ts';
import { JsonField, NotJson } from '../components/json-field.ts';
import { ProblemNote } from '../components/problem-note.ts';
import { type FieldSchema, SchemaForm } from '../components/schema-form.ts';
import { describe, type PlaySetup } from './episode.ts';

/** A pause in typing after which the server is asked what it thinks. */
const PAUSE_MS = 200;
/** Pointers to what is set here. */
const SETTINGS = /^\/(config|wrappers|options|observation_format)(\/|$)/;

/** Everything that can be set about an environment besides preset and seed, checked by the server while it is written. */
export class SetupPanel {
  readonly #client: Client;
  readonly #envId: string;
  readonly #note = new ProblemNote();
  readonly #form: SchemaForm;
  readonly #options: JsonField;
  readonly #wrappers: JsonField;
  readonly #format: HTMLSelectElement;
  readonly element: HTMLDetailsElement;
  #preset: string | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #checks = 0;

  /** @param apply begins to play with what is set */
  constructor(client: Client, environment: Environment, apply: () => void) {
    this.#client = client;
    this.#envId = environment.env_id;
    const check = () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.check().catch(error => this.#note.show(error)), PAUSE_MS);
    };
    this.#form = new SchemaForm(environment.config_schema as FieldSchema, check);
    this.#form.showDefaults(environment.config);
    const pins = Object.keys((environment.options_schema as FieldSchema).properties ?? {});
    this.#options = new JsonField({
      label: 'Options of the start',
      value: {},
      rows: 2,
      hint: pins.length > 0 ? `A JSON object that may pin ${pins.join(', ')}.` : 'The environment has none.',
    });
    this.#wrappers = new JsonField({
      label: 'Wrappers',
      value: [],
      rows: 2,
      hint: 'A JSON list such as [{"name": "time_limit", "options": {"max_steps": 5}}].',
      oninput: check,
    });
    const formatId = newId();
    this.#format = h(
      'select',
      { id: formatId },
      ...environment.observation_formats.map(format => h('option', {}, format)),
    );
    this.element = h(
      'details',
      { class: 'stack setup' },
      h('summary', {}, 'Settings'),
      h('h2', {}, 'Configuration'),
      this.#form.element,
      h('h2', {}, 'Session'),
      h(
        'div',
        { class: 'tiles of-13 fields' },
        h('div', { class: 'field' }, h('label', { for: formatId }, 'Observation format'), this.#format),
        this.#options.element,
        this.#wrappers.element,
      ),
      this.#note.element,
      h('button', { type: 'button', class: 'primary', onclick: apply }, 'Start over with these settings'),
    );
  }

  /** Present settings. @throws NotJson, after showing the position */
  get setup(): PlaySetup {
    return {
      config: { ...(this.#preset !== undefined && { preset: this.#preset }), ...this.#form.changes },
      wrappers: this.#wrappers.value as unknown as WrapperChoice[],
      options: this.#options.value as JsonObject,
      format: this.#format.value,
    };
  }

  /** Takes over what somebody else set. */
  adopt({ config, wrappers, options, format }: PlaySetup): void {
    const { preset, ...changes } = config;
    this.#preset = preset as string | undefined;
    this.#form.adopt(changes);
    this.#wrappers.value = wrappers as unknown as JsonObject[];
    this.#options.value = options;
    this.#format.value = format;
  }

  set preset(preset: string | undefined) {
    this.#preset = preset;
  }

  /**
   * Asks the server about what is set and shows what it refuses.
   * @returns what was asked about, with the environment under it; undefined when it was refused
   * @throws RequestFailed, ServerAway when it is not about the settings
   */
  async check(): Promise<{ readonly environment: Environment; readonly setup: PlaySetup } | undefined> {
    clearTimeout(this.#timer);
    const turn = ++this.#checks;
    try {
      const { setup } = this;
      const environment = await describe(this.#client, this.#envId, setup);
      if (turn === this.#checks) {
        this.#show([]);
        this.#form.showDefaults(environment.config);
      }
      return { environment, setup };
    } catch (error) {
      if (turn === this.#checks) this.refuse(error);
      return undefined;
    }
  }

  /** Shows at the fields what an error says of them. @throws the error when it is not about the settings */
  refuse(error: unknown): void {
    if (error instanceof NotJson) return; // Its field says so.
    const violations = error instanceof RequestFailed ? (error.problem.errors ?? []) : [];
    if (!violations.some(({ pointer }) => SETTINGS.test(pointer))) throw error;
    this.element.open = true;
    if (this.#show(violations).length > 0) this.#note.show(error);
  }

  /** Marks the fields that violations are about; hands back those that are about none. */
  #show(violations: readonly Violation[]): Violation[] {
    this.#note.clear();
    for (const [field, root] of this.#jsonFields) {
      const found = violations.filter(({ pointer }) => pointer.startsWith(root));
      const lines = found.map(({ pointer, detail }) => `${pointer.slice(root.length)}: ${detail}`);
      if (found.length > 0) field.fail(lines.join('\n'));
      else field.clear();
    }
    return this.#form
      .showViolations(violations, '/config')
      .filter(({ pointer }) => !this.#jsonFields.some(([, root]) => pointer.startsWith(root)));
  }

  get #jsonFields(): [JsonField, string][] {
    return [
      [this.#options, '/options'],
      [this.#wrappers, '/wrappers'],
    ];
  }
}
