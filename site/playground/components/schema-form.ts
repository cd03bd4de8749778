import type { Json, JsonObject } from '../../../shared/json.ts';
import { fill, h, newId } from '../../components/element.ts';
import type { Violation } from '../client/wire.ts';

/** As much of a JSON Schema as fields are made from; the server checks the rest. */
export interface FieldSchema {
  readonly type?: string;
  readonly description?: string;
  readonly const?: Json;
  readonly enum?: readonly Json[];
  readonly anyOf?: readonly FieldSchema[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly properties?: { readonly [name: string]: FieldSchema };
}

interface FormField {
  readonly element: HTMLElement;
  readonly error: HTMLElement;
  readonly control: HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;
  write(value: Json): void;
  /** Entered value; undefined for an empty field. @throws SyntaxError for invalid JSON */
  read(): Json | undefined;
}

/** Values that a schema allows, where it lists them. */
function choicesOf(schema: FieldSchema): readonly Json[] | undefined {
  if (schema.enum) return schema.enum;
  if (schema.anyOf?.every(option => option.const !== undefined))
    return schema.anyOf.map(option => option.const!);
  return undefined;
}

/** A form with a field for every property of a JSON Schema; knows which of them its user changed. */
export class SchemaForm {
  readonly element = h('div', { class: 'tiles of-13 fields' });
  readonly #fields = new Map<string, FormField>();
  readonly #changed = new Map<string, Json>();
  readonly #onchange: () => void;

  constructor(schema: FieldSchema, onchange: () => void) {
    this.#onchange = onchange;
    for (const [name, property] of Object.entries(schema.properties ?? {})) this.#add(name, property);
    if (this.#fields.size === 0) fill(this.element, h('p', { class: 'hint' }, 'There is nothing to set.'));
  }

  /** Changed values. */
  get changes(): JsonObject {
    return Object.fromEntries(this.#changed);
  }

  /** Writes values into the fields that nobody changed. */
  showDefaults(values: { readonly [name: string]: unknown }): void {
    for (const [name, field] of this.#fields) {
      if (!this.#changed.has(name) && Object.hasOwn(values, name)) field.write(values[name] as Json);
    }
  }

  /** Takes values over as changes. */
  adopt(changes: JsonObject): void {
    this.#changed.clear();
    for (const [name, value] of Object.entries(changes)) {
      const field = this.#fields.get(name);
      if (!field) continue;
      this.#changed.set(name, value);
      field.write(value);
    }
  }

  /** Shows violations at their fields; those of no field are handed back. */
  showViolations(violations: readonly Violation[], root: string): Violation[] {
    for (const field of this.#fields.values()) mark(field, undefined);
    return violations.filter(({ pointer, detail }) => {
      if (!pointer.startsWith(`${root}/`)) return true;
      const field = this.#fields.get(pointer.slice(root.length + 1).split('/')[0]);
      if (field) mark(field, detail);
      return field === undefined;
    });
  }

  #add(name: string, schema: FieldSchema): void {
    const field = makeField(name, schema);
    this.#fields.set(name, field);
    this.element.append(field.element);
    field.control.addEventListener('input', () => {
      let value: Json | undefined;
      try {
        value = field.read();
      } catch (error) {
        mark(field, `not JSON: ${(error as Error).message}`);
        return;
      }
      if (value === undefined) this.#changed.delete(name);
      else this.#changed.set(name, value);
      this.#onchange();
    });
  }
}

function mark({ control, error }: FormField, message: string | undefined): void {
  control.toggleAttribute('aria-invalid', message !== undefined);
  if (message !== undefined) control.setAttribute('aria-invalid', 'true');
  error.hidden = message === undefined;
  fill(error, message);
}

function makeField(name: string, schema: FieldSchema): FormField {
  const id = newId();
  const error = h('p', { class: 'field-error', id: newId(), hidden: true });
  const hint =
    schema.description === undefined ? undefined : h('p', { class: 'hint', id: newId() }, schema.description);
  const attributes = { id, 'aria-describedby': `${error.id} ${hint?.id ?? ''}`.trim() };
  const { control, write, read } = makeControl(schema, attributes);
  const label = h('label', { for: id }, h('code', {}, name));
  const isCheck = control instanceof HTMLInputElement && control.type === 'checkbox';
  const element = isCheck
    ? h('div', { class: 'field' }, h('span', { class: 'check' }, control, label), error, hint)
    : h('div', { class: 'field' }, label, control, error, hint);
  return { element, error, control, write, read };
}

type Control = Pick<FormField, 'control' | 'write' | 'read'>;

function makeControl(schema: FieldSchema, attributes: { readonly [name: string]: string }): Control {
  const choices = choicesOf(schema);
  if (choices) {
    const options = choices.map((choice, index) => h('option', { value: index }, String(choice)));
    const control = h('select', attributes, ...options);
    return {
      control,
      write: value => {
        control.selectedIndex = choices.indexOf(value);
      },
      read: () => choices[control.selectedIndex],
    };
  }
  if (schema.type === 'boolean') {
    const control = h('input', { ...attributes, type: 'checkbox' });
    return {
      control,
      write: value => {
        control.checked = value === true;
      },
      read: () => control.checked,
    };
  }
  if (schema.type === 'number' || schema.type === 'integer') return numberControl(schema, attributes);
  if (schema.type === 'string') {
    const control = h('input', { ...attributes, type: 'text' });
    return {
      control,
      write: value => {
        control.value = String(value);
      },
      read: () => control.value,
    };
  }
  const control = h('textarea', { ...attributes, rows: 2, class: 'code', spellcheck: 'false' });
  return {
    control,
    write: value => {
      control.value = JSON.stringify(value);
    },
    read: () => (control.value.trim() === '' ? undefined : JSON.parse(control.value)),
  };
}

/** Bounds are hints for the arrows of the field; the server judges what is sent. */
function numberControl(schema: FieldSchema, attributes: { readonly [name: string]: string }): Control {
  const control = h('input', {
    ...attributes,
    type: 'number',
    step: schema.type === 'integer' ? 1 : 'any',
    min: schema.minimum,
    max: schema.maximum,
  });
  return {
    control,
    write: value => {
      control.value = String(value);
    },
    read: () => (Number.isNaN(control.valueAsNumber) ? undefined : control.valueAsNumber),
  };
}
