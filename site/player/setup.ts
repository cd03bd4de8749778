import type { Json, JsonObject } from '../../shared/json.ts';
import {
  type FieldSchema,
  fieldText,
  fieldValue,
  jsonText,
  NotJson,
  parseJson,
} from '../components/fields.ts';
import { RequestFailed, type Violation } from '../components/request.ts';
import { Store } from '../components/store.ts';
import { describe } from './episode.ts';
import { DEFAULT_SETUP, type PlaySetup, type PlayStart } from './session-state.ts';
import type { Environment, EnvironmentServer, WrapperChoice } from './wire.ts';

/** Environment to play, and the start of its episode. */
export type PlayRequest = PlayStart & { readonly envId: string };

/** Texts and faults of the fields for an episode's start. */
export interface SetupState {
  readonly environment: Environment;
  readonly preset: string | undefined;
  readonly seed: string;
  /** True if the field has a seed that no episode has used yet: the field keeps it. */
  readonly isSeedEdited: boolean;
  /** Seed of the current episode. */
  readonly playedSeed?: number;
  /** Configuration fields that the visitor changed. */
  readonly changes: { readonly [name: string]: string };
  readonly options: string;
  readonly wrappers: string;
  readonly format: string;
  /** By `config/NAME`, `options`, `wrappers`. */
  readonly errors: { readonly [field: string]: string };
  /** Error without a field. */
  readonly problem?: unknown;
  /** True if the fields are expanded. */
  readonly isOpen: boolean;
}

type SetupEvent =
  | { readonly type: 'set'; readonly values: Partial<SetupState> }
  | { readonly type: 'written'; readonly name: string; readonly text: string }
  | { readonly type: 'played'; readonly seed: number | undefined }
  | { readonly type: 'accepted'; readonly environment: Environment }
  | { readonly type: 'refused'; readonly error: unknown };

/** Pointers to the settings in this panel. */
const SETTINGS = /^\/(config|wrappers|options|observation_format)(\/|$)/;

export const propertiesOf = ({ config_schema }: Environment): { readonly [name: string]: FieldSchema } =>
  (config_schema as FieldSchema).properties ?? {};

export function beginSetup(environment: Environment, request: PlayRequest): SetupState {
  const { preset, config = {}, wrappers = [], options = {}, format = DEFAULT_SETUP.format, seed } = request;
  const { preset: named, ...values } = config;
  const properties = propertiesOf(environment);
  const known = Object.entries(values).filter(([name]) => Object.hasOwn(properties, name));
  return {
    environment,
    // The configuration may also name it, as in a run's settings.
    preset: preset ?? (typeof named === 'string' ? named : undefined),
    seed: seed === undefined ? '' : String(seed),
    isSeedEdited: false,
    playedSeed: seed,
    changes: Object.fromEntries(known.map(([name, value]) => [name, fieldText(properties[name], value)])),
    options: jsonText(options),
    wrappers: jsonText(wrappers),
    format,
    errors: {},
    isOpen: false,
  };
}

export function reduceSetup(state: SetupState, event: SetupEvent): SetupState {
  switch (event.type) {
    case 'set':
      return { ...state, ...event.values };
    case 'written':
      return { ...state, changes: { ...state.changes, [event.name]: event.text } };
    case 'played': {
      if (event.seed === state.playedSeed) return state;
      const seed = event.seed === undefined ? '' : String(event.seed);
      return { ...state, playedSeed: event.seed, seed: state.isSeedEdited ? state.seed : seed };
    }
    case 'accepted':
      return { ...state, environment: event.environment, errors: {}, problem: undefined };
    case 'refused': {
      const { error } = event;
      if (error instanceof UnreadableField)
        return { ...state, errors: { [error.field]: error.message }, problem: undefined };
      const violations = error instanceof RequestFailed ? (error.problem.errors ?? []) : [];
      const { errors, isElsewhere } = errorsOf(violations, propertiesOf(state.environment));
      return { ...state, errors, problem: isElsewhere ? error : undefined, isOpen: true };
    }
  }
}

/** A field that is not JSON. */
class UnreadableField extends Error {
  readonly field: string;

  constructor(field: string, cause: NotJson) {
    super(cause.message, { cause });
    this.field = field;
  }
}

/** @throws UnreadableField */
function reading<T>(field: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw error instanceof NotJson ? new UnreadableField(field, error) : error;
  }
}

/**
 * Settings from the fields.
 * @throws UnreadableField
 */
export function setupOf(state: SetupState): PlaySetup {
  const { environment, preset, changes, options, wrappers, format } = state;
  const properties = propertiesOf(environment);
  const values = Object.entries(changes).map(([name, text]) => {
    const value = reading(`config/${name}`, () => fieldValue(properties[name], name, text));
    return [name, value] as const;
  });
  return {
    config: {
      ...(preset !== undefined && { preset }),
      ...(Object.fromEntries(values.filter(([, value]) => value !== undefined)) as JsonObject),
    },
    wrappers: reading('wrappers', () => parseJson('Wrappers', wrappers)) as unknown as WrapperChoice[],
    options: reading('options', () => parseJson('Options of the start', options)) as JsonObject,
    format,
  };
}

/** Violations by field, and whether others are left. */
function errorsOf(violations: readonly Violation[], properties: object) {
  const errors: { [field: string]: string } = {};
  let isElsewhere = false;
  for (const { pointer, detail } of violations) {
    const [, root, name] = pointer.split('/');
    if (root === 'config' && name !== undefined && Object.hasOwn(properties, name))
      errors[`config/${name}`] = detail;
    else if (root === 'options' || root === 'wrappers') {
      const line = `${pointer.slice(root.length + 1)}: ${detail}`;
      errors[root] = errors[root] === undefined ? line : `${errors[root]}\n${line}`;
    } else isElsewhere = true;
  }
  return { errors, isElsewhere };
}

/** Milliseconds without typing after which the server checks the settings. */
const PAUSE_MS = 200;

/** All settings of an episode's start, checked by the server while they are written. */
export class Setup {
  readonly #server: EnvironmentServer;
  readonly store: Store<SetupState, SetupEvent>;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #checks = 0;

  constructor(server: EnvironmentServer, environment: Environment, request: PlayRequest) {
    this.#server = server;
    this.store = new Store(reduceSetup, beginSetup(environment, request));
  }

  set(values: Partial<SetupState>): void {
    this.store.dispatch({ type: 'set', values });
  }

  /** Schedules a check after a pause in typing. */
  write(change: Extract<SetupEvent, { type: 'set' | 'written' }>): void {
    this.store.dispatch(change);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.check().catch(problem => this.set({ problem })), PAUSE_MS);
  }

  /** The seed for a new episode; undefined where the field is empty. */
  takeSeed(): number | undefined {
    this.set({ isSeedEdited: false });
    const { seed } = this.store.state;
    return seed === '' ? undefined : Number(seed);
  }

  /**
   * Lets the server check the settings, and shows its refusals.
   * @returns the checked settings, with the environment under them; undefined when they were rejected
   * @throws RequestFailed, ServerAway when it is not about the settings
   */
  async check(): Promise<{ readonly environment: Environment; readonly setup: PlaySetup } | undefined> {
    clearTimeout(this.#timer);
    const turn = ++this.#checks;
    try {
      const setup = setupOf(this.store.state);
      const environment = await describe(this.#server, this.store.state.environment.env_id, setup);
      if (turn === this.#checks) this.store.dispatch({ type: 'accepted', environment });
      return { environment, setup };
    } catch (error) {
      if (turn === this.#checks) this.refuse(error);
      return undefined;
    }
  }

  /**
   * Shows an error's violations at the fields.
   * @throws the error when it is not about the settings
   */
  refuse(error: unknown): void {
    const violations = error instanceof RequestFailed ? (error.problem.errors ?? []) : [];
    const isOurs =
      error instanceof UnreadableField || violations.some(({ pointer }) => SETTINGS.test(pointer));
    if (!isOurs) throw error;
    this.store.dispatch({ type: 'refused', error });
  }
}

/** The text of a configuration field: the visitor's, or else the effective value. */
export function shownText({ changes, environment }: SetupState, name: string): string {
  if (Object.hasOwn(changes, name)) return changes[name];
  const value = (environment.config as { readonly [name: string]: Json })[name];
  return value === undefined ? '' : fieldText(propertiesOf(environment)[name], value);
}
