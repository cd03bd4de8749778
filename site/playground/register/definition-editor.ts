import type { Json, JsonObject } from '../../../shared/json.ts';
import { h, newId } from '../../components/element.ts';
import type { Violation } from '../client/wire.ts';
import { JsonField } from '../components/json-field.ts';
import { LINE } from '../components/problem-note.ts';

const DEFINITION = '/definition';
const SOURCE = '/definition/source';

/** Environment to register: an id and a definition. */
export interface DefinitionDraft {
  readonly env_id: string;
  readonly definition: JsonObject;
}

/** Fields for id and definition; the source of a script has a separate field. */
export class DefinitionEditor {
  readonly #id = h('input', {
    id: newId(),
    type: 'text',
    class: 'code grow',
    spellcheck: 'false',
    autocomplete: 'off',
  });
  readonly #definition = new JsonField({ label: 'Definition', value: {}, rows: 16 });
  readonly #source = new JsonField({ label: 'Source in JavaScript', value: '', rows: 18, plain: true });
  readonly element: HTMLElement;
  /** True once something was written or loaded. */
  touched = false;

  /** @param load fetches the definition that is registered under an id */
  constructor(load: (envId: string) => void) {
    const button = h('button', { type: 'button', onclick: () => load(this.envId) }, 'Load');
    this.element = h(
      'div',
      { class: 'stack roomy definition-editor' },
      h(
        'div',
        { class: 'field' },
        h('label', { for: this.#id.id }, 'Environment id'),
        h('div', { class: 'pair' }, this.#id, button),
      ),
      this.#definition.element,
      this.#source.element,
    );
    this.element.addEventListener('input', () => {
      this.touched = true;
    });
  }

  get envId(): string {
    return this.#id.value.trim();
  }

  /** Definition as submitted. @throws NotJson, after moving the cursor to the fault */
  get draft(): DefinitionDraft {
    const definition = this.#definition.submit() as JsonObject;
    const source = this.#source.element.hidden ? undefined : this.#source.value;
    return { env_id: this.envId, definition: source === undefined ? definition : { ...definition, source } };
  }

  set draft({ env_id, definition }: DefinitionDraft) {
    this.touched = true;
    const { source, ...rest } = definition;
    this.#id.value = env_id;
    this.#definition.value = rest;
    this.#source.element.hidden = source === undefined;
    this.#source.value = Array.isArray(source) ? source.join('\n') : ((source ?? '') as Json);
  }

  /** Goes to the place of a violation. */
  reveal({ pointer, detail }: Violation): void {
    const line = LINE.exec(detail);
    if (line && !this.#source.element.hidden) this.#source.revealLine(Number(line[1]));
    else if (pointer.startsWith(SOURCE)) this.#source.reveal('');
    else if (pointer.startsWith(DEFINITION)) this.#definition.reveal(pointer.slice(DEFINITION.length));
    else this.#id.focus();
  }
}
