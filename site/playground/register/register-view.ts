import { SerialQueue } from '../../../shared/scheduling/serial-queue.ts';
import { fill, h, newId } from '../../components/element.ts';
import type { Address } from '../address.ts';
import { type Client, environmentPath } from '../client/client.ts';
import type { Registration, Schemas } from '../client/wire.ts';
import { NotJson } from '../components/json-field.ts';
import { ProblemNote } from '../components/problem-note.ts';
import { requestLog } from '../components/request-log.ts';
import type { View } from '../view.ts';
import { type DefinitionDraft, DefinitionEditor } from './definition-editor.ts';
import { registrationReport } from './registration-report.ts';

interface Example {
  readonly summary: string;
  readonly value: DefinitionDraft;
}

/** As much of the OpenAPI document as holds the examples. */
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

/** Environments of the visitor's own: written from an example, checked and registered, loaded, replaced, removed. */
export class RegisterView implements View<'register'> {
  readonly #client: Client;
  readonly #editor = new DefinitionEditor(envId => this.load(envId));
  readonly #loadNote = new ProblemNote();
  readonly #problem = new ProblemNote(violation => this.#editor.reveal(violation));
  readonly #report = h('div', { role: 'status' });
  readonly #examples = h('select', { id: newId(), onchange: () => this.#useExample() });
  readonly #remove = h('button', {
    type: 'button',
    onclick: () => this.#askTwice(),
    onblur: () => this.#askAgain(),
  });
  readonly element: HTMLElement;
  /** Requests that are not done. */
  readonly #pending = new Set<string>();
  readonly #queue = new SerialQueue();
  #known: { readonly [kind: string]: Example } | undefined;

  constructor(client: Client) {
    this.#client = client;
    this.#askAgain();
    this.#rest();
    this.element = h(
      'div',
      { class: 'columns register-view' },
      h(
        'section',
        { class: 'stack roomy editor', 'aria-labelledby': 'register-title' },
        h('h1', { id: 'register-title', tabindex: -1 }, 'Register an environment'),
        h(
          'p',
          { class: 'prose' },
          'Write down a table of states or a script, or start from another kind. The server plays it before it accepts it; then anybody may play it under its id.',
        ),
        this.#loadNote.element,
        h(
          'p',
          { class: 'pair' },
          h('label', { for: this.#examples.id }, 'Start from the example'),
          this.#examples,
        ),
        h(
          'form',
          {
            class: 'stack roomy',
            onsubmit: (event: SubmitEvent) => {
              event.preventDefault();
              this.#send('POST');
            },
          },
          this.#editor.element,
          h(
            'div',
            { class: 'row' },
            h('button', { type: 'submit', class: 'primary' }, 'Check and register'),
            h('button', { type: 'button', onclick: () => this.#send('PUT') }, 'Replace'),
            this.#remove,
          ),
        ),
      ),
      h(
        'div',
        { class: 'stack roomy side' },
        h(
          'section',
          { class: 'panel', 'aria-labelledby': 'report-title' },
          h('div', { class: 'panel-head' }, h('h2', { id: 'report-title' }, 'Report')),
          this.#report,
          this.#problem.element,
        ),
        requestLog(client),
      ),
    );
  }

  async show({ envId }: Address & { view: 'register' }, first: boolean): Promise<void> {
    if (!first) this.element.querySelector('h1')?.focus();
    await this.#offerExamples();
    if (envId !== undefined) await this.load(envId);
  }

  hide(): void {}

  /** Takes the definition of a registered environment into the editor. */
  async load(envId: string): Promise<void> {
    await this.#do(`load ${envId}`, async () => {
      const path = environmentPath(envId, 'definition');
      const { definition } = await this.#client.json<Schemas['StoredDefinition']>('GET', path);
      this.#editor.draft = {
        env_id: envId,
        definition: definition as unknown as DefinitionDraft['definition'],
      };
      fill(
        this.#report,
        h('p', {}, 'Loaded ', h('code', {}, envId), '. Replace puts your changes in its place.'),
      );
    });
  }

  async #offerExamples(): Promise<void> {
    if (this.#known) return;
    await this.#loadNote.around(async () => {
      const document = await this.#client.json<ExamplesDocument>('GET', 'openapi.json', { quiet: true });
      const { examples } = document.paths['/v1/envs'].post.requestBody.content['application/json'];
      this.#known = examples;
      const options = Object.entries(examples).map(([kind, { summary }]) =>
        h('option', { value: kind }, summary),
      );
      fill(this.#examples, ...options);
      // What the visitor wrote while the examples were on their way stays.
      if (!this.#editor.touched) this.#editor.draft = Object.values(examples)[0].value;
    });
  }

  #useExample(): void {
    const example = this.#known?.[this.#examples.value];
    if (!example) return;
    this.#editor.draft = example.value;
    this.#problem.clear();
    this.#rest();
  }

  async #send(method: 'POST' | 'PUT'): Promise<void> {
    // The draft as it is now, even if another is loaded meanwhile; its fault is reported in its turn.
    const draft = (async () => this.#editor.draft)();
    draft.catch(() => {});
    await this.#do(method, async () => {
      const { env_id, definition } = await draft;
      const registration =
        method === 'POST'
          ? await this.#client.json<Registration>('POST', 'v1/envs', { body: { env_id, definition } })
          : await this.#client.json<Registration>('PUT', environmentPath(env_id), { body: { definition } });
      fill(this.#report, registrationReport(registration));
    });
  }

  /** The first press asks, the second one removes. */
  #askTwice(): void {
    if (this.#remove.dataset.asked === undefined) {
      this.#remove.dataset.asked = '';
      this.#remove.textContent = `Really remove ${this.#editor.envId}?`;
      return;
    }
    this.#askAgain();
    const { envId } = this.#editor;
    this.#do(`remove ${envId}`, async () => {
      await this.#client.json('DELETE', environmentPath(envId));
      fill(this.#report, h('p', {}, h('code', {}, envId), ' was removed.'));
    });
  }

  #askAgain(): void {
    delete this.#remove.dataset.asked;
    this.#remove.textContent = 'Remove';
  }

  /** One request after the other, with what comes of it in the report; what is pressed twice is done once. */
  async #do(name: string, work: () => Promise<void>): Promise<void> {
    if (this.#pending.has(name)) return;
    this.#pending.add(name);
    await this.#queue.run(() => this.#reportOn(work)).finally(() => this.#pending.delete(name));
  }

  async #reportOn(work: () => Promise<void>): Promise<void> {
    this.#problem.clear();
    fill(this.#report, h('p', { class: 'hint' }, 'The server is at it …'));
    try {
      await work();
    } catch (error) {
      // A field that holds no JSON says so itself.
      if (!(error instanceof NotJson)) this.#problem.show(error);
      fill(this.#report, h('p', {}, h('span', { class: 'chip bad' }, 'refused'), ' Nothing was changed.'));
    }
    this.#report.scrollIntoView({ block: 'nearest' });
  }

  #rest(): void {
    fill(
      this.#report,
      h(
        'p',
        { class: 'hint' },
        'The server’s checks appear here: whether the definition is well-formed, resets and steps, keeps to its spaces, and gives the same episode for the same seed.',
      ),
    );
  }
}
