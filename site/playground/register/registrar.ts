import type { JsonObject } from '../../../shared/json.ts';
import { SerialQueue } from '../../../shared/scheduling/serial-queue.ts';
import { jsonText, NotJson, parseJson } from '../../components/fields.ts';
import { Store } from '../../components/store.ts';
import type { Registration, Schemas } from '../../player/wire.ts';
import { type Client, environmentPath } from '../client/client.ts';

/** Environment to register: an id and a definition. */
interface DefinitionDraft {
  readonly env_id: string;
  readonly definition: JsonObject;
}

interface Example {
  readonly summary: string;
  readonly value: DefinitionDraft;
}

/** The part of the OpenAPI document that holds the examples. */
interface ExamplesDocument {
  readonly paths: {
    readonly '/v1/envs': {
      readonly post: {
        readonly requestBody: {
          readonly content: {
            readonly 'application/json': { readonly examples: { readonly [kind: string]: Example } };
          };
        };
      };
    };
  };
}

/** Result of the last request. */
type Report =
  | { readonly kind: 'none' | 'working' | 'refused' }
  | { readonly kind: 'loaded' | 'removed'; readonly envId: string }
  | { readonly kind: 'registered'; readonly registration: Registration };

interface RegistrarState {
  readonly examples: { readonly [kind: string]: Example };
  readonly examplesProblem?: unknown;
  readonly envId: string;
  /** JSON, without the source of a script. */
  readonly definition: string;
  /** Source of a script; undefined for definitions of other kinds. */
  readonly source: string | undefined;
  /** True once something was written or loaded. */
  readonly isTouched: boolean;
  /** True if the definition is not JSON. */
  readonly fault?: NotJson;
  readonly problem?: unknown;
  readonly report: Report;
}

/** The visitor's own environments: the draft, and the requests about it. */
export class Registrar {
  readonly #client: Client;
  readonly store = new Store<RegistrarState, Partial<RegistrarState>>(
    (state, change) => ({ ...state, ...change }),
    {
      examples: {},
      envId: '',
      definition: '{}',
      source: '',
      isTouched: false,
      report: { kind: 'none' },
    },
  );
  /** Number of pending requests. */
  readonly #pending = new Set<string>();
  readonly #queue = new SerialQueue();

  constructor(client: Client) {
    this.#client = client;
  }

  write(change: Pick<Partial<RegistrarState>, 'envId' | 'definition' | 'source'>): void {
    this.store.dispatch({ ...change, isTouched: true });
  }

  /** Requests the examples, and begins with the first if nothing was written yet. */
  async offerExamples(): Promise<void> {
    if (Object.keys(this.store.state.examples).length > 0) return;
    try {
      const document = await this.#client.json<ExamplesDocument>('GET', 'openapi.json', { quiet: true });
      const { examples } = document.paths['/v1/envs'].post.requestBody.content['application/json'];
      this.store.dispatch({ examples, examplesProblem: undefined });
      // Text written while the examples were loading stays.
      if (!this.store.state.isTouched) this.#edit(Object.values(examples)[0].value);
    } catch (examplesProblem) {
      this.store.dispatch({ examplesProblem });
    }
  }

  useExample(kind: string): void {
    const example = this.store.state.examples[kind];
    if (!example) return;
    this.#edit(example.value);
    this.store.dispatch({ problem: undefined, report: { kind: 'none' } });
  }

  #edit({ env_id: envId, definition }: DefinitionDraft): void {
    const { source, ...rest } = definition;
    const text = Array.isArray(source) ? source.join('\n') : source;
    this.write({ envId, definition: jsonText(rest), source: text === undefined ? undefined : String(text) });
    this.store.dispatch({ fault: undefined });
  }

  /** Loads the definition of a registered environment into the editor. */
  async load(envId: string): Promise<void> {
    await this.#do(`load ${envId}`, async () => {
      const path = environmentPath(envId, 'definition');
      const { definition } = await this.#client.json<Schemas['StoredDefinition']>('GET', path);
      this.#edit({ env_id: envId, definition: definition as unknown as JsonObject });
      return { kind: 'loaded', envId };
    });
  }

  /**
   * Registers the current draft, even if another is loaded meanwhile.
   * @param method `PUT` replaces
   */
  async send(method: 'POST' | 'PUT'): Promise<void> {
    const { envId, definition: text, source } = this.store.state;
    await this.#do(method, async () => {
      const written = parseJson('Definition', text) as JsonObject;
      const definition = source === undefined ? written : { ...written, source };
      const id = envId.trim();
      const registration =
        method === 'POST'
          ? await this.#client.json<Registration>('POST', 'v1/envs', { body: { env_id: id, definition } })
          : await this.#client.json<Registration>('PUT', environmentPath(id), { body: { definition } });
      return { kind: 'registered', registration };
    });
  }

  async remove(envId: string): Promise<void> {
    await this.#do(`remove ${envId}`, async () => {
      await this.#client.json('DELETE', environmentPath(envId));
      return { kind: 'removed', envId };
    });
  }

  /** One request after another, with the result in the report; a double click sends one. */
  async #do(name: string, work: () => Promise<Report>): Promise<void> {
    if (this.#pending.has(name)) return;
    this.#pending.add(name);
    await this.#queue.run(() => this.#reportOn(work)).finally(() => this.#pending.delete(name));
  }

  async #reportOn(work: () => Promise<Report>): Promise<void> {
    this.store.dispatch({ problem: undefined, fault: undefined, report: { kind: 'working' } });
    try {
      this.store.dispatch({ report: await work() });
    } catch (problem) {
      const report = { kind: 'refused' } as const;
      // A field that is not JSON reports it itself.
      this.store.dispatch(problem instanceof NotJson ? { fault: problem, report } : { problem, report });
    }
  }
}
