import type { Json } from '../../../shared/json.ts';
import { fill, h, newId } from '../../components/element.ts';
import type { Environment } from '../client/wire.ts';
import { formatValue } from '../components/format.ts';
import { JsonField } from '../components/json-field.ts';
import { keysFor, type PlayKey } from './keys.ts';

/** Actions that are offered as buttons; above it a field with suggestions is handier. */
const MAX_BUTTONS = 40;
/** Texts that may be longer than this begin in a field of several lines. */
const LONG_TEXT = 4000;
const ARROW_PAD = 4;

interface DiscreteSpace {
  readonly type: 'Discrete';
  readonly n: number;
  readonly start: number;
}
interface TextSpace {
  readonly type: 'Text';
  readonly max_length: number;
}
type ActionSpace = DiscreteSpace | TextSpace | { readonly type: 'Dict' | 'Json' };

/** Ways to act, as the action space has them: buttons with keys, a field for text, or JSON. */
export class ActionPad {
  readonly element: HTMLElement;
  /** A field for any JSON, folded away; absent where the pad is one. */
  readonly anything: HTMLElement | undefined;
  /** Actions of the keys, by key name. */
  readonly keys = new Map<string, Json>();
  readonly #act: (action: Json) => void;
  #first: HTMLElement | undefined;

  constructor(environment: Environment, act: (action: Json) => void) {
    this.#act = act;
    const space = environment.action_space.gymnasium as ActionSpace;
    this.element = h(
      'div',
      { class: 'stack pad', role: 'group', 'aria-label': 'Actions' },
      this.#main(space, environment),
    );
    if (space.type === 'Discrete' || space.type === 'Text') this.anything = this.#anything(environment);
  }

  /** First field of a typed action; undefined where actions are buttons. */
  get field(): HTMLElement | undefined {
    return this.#first;
  }

  #main(space: ActionSpace, environment: Environment): HTMLElement {
    switch (space.type) {
      case 'Discrete': {
        const actions: Json[] =
          environment.actions ?? Array.from({ length: space.n }, (_, index) => space.start + index);
        return actions.length > MAX_BUTTONS ? this.#choice(actions) : this.#buttons(actions);
      }
      case 'Text':
        return this.#text(space, environment);
      default:
        return this.#json(environment, 'Action');
    }
  }

  #buttons(actions: readonly Json[]): HTMLElement {
    const keys = keysFor(actions.map(String));
    const arrows = keys.every(key => key?.name.startsWith('Arrow')) && keys.length === ARROW_PAD;
    return h(
      'div',
      { class: arrows ? 'row buttons arrows' : 'row buttons' },
      ...actions.map((action, index) => this.#button(action, keys[index])),
    );
  }

  #button(action: Json, key: PlayKey | undefined): HTMLButtonElement {
    if (key) this.keys.set(key.name, action);
    const button = h(
      'button',
      {
        type: 'button',
        class: 'action',
        'data-key': key?.name,
        'aria-keyshortcuts': key?.name,
        onclick: () => this.#act(action),
      },
      String(action),
      key && h('kbd', { 'aria-hidden': 'true' }, key.hint),
    );
    if (key?.name.startsWith('Arrow')) button.style.gridArea = key.name;
    return button;
  }

  #choice(actions: readonly Json[]): HTMLElement {
    const list = newId();
    const form = this.#line({ list, placeholder: `${actions.length} actions` }, text =>
      typeof actions[0] === 'number' ? Number(text) : text,
    );
    form.append(
      h('datalist', { id: list }, ...actions.map(action => h('option', { value: String(action) }))),
    );
    return form;
  }

  #text(space: TextSpace, environment: Environment): HTMLElement {
    const place = h('div', { class: 'stack tight' });
    const example = formatValue(environment.example_action);
    const show = (several: boolean, text: string) => {
      const toggle = h(
        'button',
        { type: 'button', class: 'link', onclick: () => show(!several, this.#textOf()) },
        several ? 'one line' : 'several lines',
      );
      const useExample = h(
        'button',
        { type: 'button', class: 'link', onclick: () => this.#write(example) },
        'example',
      );
      fill(
        place,
        this.#line({ several }, value => value),
        h(
          'p',
          { class: 'hint' },
          environment.action_format !== undefined && `Write ${environment.action_format}. `,
          several && 'Ctrl+Enter sends. ',
          useExample,
          ' · ',
          toggle,
        ),
      );
      this.#write(text);
    };
    show(space.max_length > LONG_TEXT, '');
    return place;
  }

  /** A field with a button; what is in it is sent and stays selected, to be typed over. */
  #line(
    { several, list, placeholder }: { several?: boolean; list?: string; placeholder?: string },
    read: (text: string) => Json,
  ): HTMLFormElement {
    const id = newId();
    const shared = {
      id,
      class: 'code',
      placeholder,
      autocomplete: 'off',
      autocapitalize: 'off',
      spellcheck: 'false',
    };
    const field = several
      ? h('textarea', { ...shared, rows: 6 })
      : h('input', { ...shared, type: 'text', list });
    this.#first = field;
    const form = h(
      'form',
      {
        class: several ? 'act several' : 'act',
        onsubmit: (event: SubmitEvent) => {
          event.preventDefault();
          this.#act(read(field.value));
          field.select();
        },
      },
      h('label', { for: id }, 'Action'),
      field,
      h('button', { type: 'submit', class: 'primary' }, 'Send'),
    );
    field.addEventListener('keydown', event => {
      const { key, ctrlKey, metaKey } = event as KeyboardEvent;
      if (several && key === 'Enter' && (ctrlKey || metaKey)) form.requestSubmit();
    });
    return form;
  }

  #json(environment: Environment, label: string): HTMLElement {
    const field = new JsonField({ label, value: environment.example_action as Json, rows: 3 });
    return h(
      'form',
      {
        class: 'act several',
        onsubmit: (event: SubmitEvent) => {
          event.preventDefault();
          let action: Json;
          try {
            action = field.submit();
          } catch {
            return; // The field says what is wrong.
          }
          this.#act(action);
        },
      },
      field.element,
      h('button', { type: 'submit', class: 'primary' }, 'Send'),
    );
  }

  #anything(environment: Environment): HTMLElement {
    return h(
      'details',
      { class: 'anything fine' },
      h('summary', {}, 'Send any JSON'),
      this.#json(environment, 'Action as JSON'),
      h('p', { class: 'hint' }, 'To see how the server answers an action it does not know.'),
    );
  }

  #textOf(): string {
    return (this.#first as HTMLInputElement | HTMLTextAreaElement).value;
  }

  #write(text: string): void {
    const field = this.#first as HTMLInputElement | HTMLTextAreaElement;
    field.value = text;
    if (text !== '') field.focus();
  }
}
