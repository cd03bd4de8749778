import type { RefObject } from 'preact';
import type { Json } from '../../shared/json.ts';
import { html } from './html.ts';
import { useUniqueId } from './store.ts';

/** A text that is not JSON. */
export class NotJson extends Error {
  /** Position where the parser stopped, if it reports one. */
  readonly position: number | undefined;

  constructor(what: string, cause: unknown) {
    const { message } = cause as Error;
    super(`${what} is not JSON: ${message}`, { cause });
    this.name = 'NotJson';
    const place = /position (\d+)/.exec(message);
    this.position = place ? Number(place[1]) : undefined;
  }
}

/** @throws NotJson */
export function parseJson(what: string, text: string): Json {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new NotJson(what, cause);
  }
}

export const jsonText = (value: unknown): string => JSON.stringify(value, null, 2);

export type Field = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement;

/** Text of the field that sent an event. */
export const textOf = (event: Event): string => (event.currentTarget as Field).value;

interface CodeFieldProps {
  readonly label: string;
  readonly text: string;
  readonly onText: (text: string) => void;
  readonly rows: number;
  /** Error of the text. */
  readonly error?: string;
  /** Shown below the field. */
  readonly hint?: string;
  readonly field?: RefObject<HTMLTextAreaElement>;
  /** True for long lines without wrapping, as in a program. */
  readonly isProgram?: boolean;
}

/** A labeled field for JSON or other code, with its fault below. */
export function CodeField({ label, text, onText, rows, error, hint, field, isProgram }: CodeFieldProps) {
  const id = useUniqueId();
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <textarea id=${id} ref=${field} rows=${rows} class="code" spellcheck=${false} autocapitalize="off" autocomplete="off"
      wrap=${isProgram ? 'off' : undefined} aria-invalid=${error === undefined ? undefined : 'true'}
      aria-describedby="${id}-error ${hint ? `${id}-hint` : ''}" value=${text}
      onInput=${(event: Event) => onText(textOf(event))} />
    <p class="fine outcome field-error" id="${id}-error" hidden=${error === undefined}>${error}</p>
    ${hint !== undefined && html`<p class="hint" id="${id}-hint">${hint}</p>`}
  </div>`;
}

/** Selects a part of a text and scrolls it into view. */
export function selectRange(area: HTMLTextAreaElement, start: number, end: number): void {
  area.focus();
  area.setSelectionRange(start, end);
  const line = area.value.slice(0, start).split('\n').length - 1;
  const lineHeight = Number.parseFloat(getComputedStyle(area).lineHeight);
  area.scrollTop = Math.max(0, line * lineHeight - area.clientHeight / 3);
}

/** Moves to the place where a parser stopped, or to the field. */
export function revealFault(area: HTMLTextAreaElement, { position }: NotJson): void {
  if (position === undefined) area.focus();
  else selectRange(area, position, position + 1);
}

/** The part of JSON Schema that fields are made from; the server checks the rest. */
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

/** The values that a schema lists. */
function choicesOf(schema: FieldSchema): readonly Json[] | undefined {
  if (schema.enum) return schema.enum;
  if (schema.anyOf?.every(option => option.const !== undefined))
    return schema.anyOf.map(option => option.const!);
  return undefined;
}

const isNumeric = ({ type }: FieldSchema): boolean => type === 'number' || type === 'integer';
const isText = (schema: FieldSchema): boolean => schema.type === 'string' && !choicesOf(schema);

/** A value as a schema's field shows it. */
export const fieldText = (schema: FieldSchema, value: Json): string =>
  isText(schema) ? String(value) : JSON.stringify(value);

/**
 * The entered value; undefined for an empty field.
 * @throws NotJson
 */
export function fieldValue(schema: FieldSchema, name: string, text: string): Json | undefined {
  if (isText(schema)) return text;
  if (isNumeric(schema) && !choicesOf(schema)) return text === '' ? undefined : Number(text);
  return text.trim() === '' ? undefined : parseJson(name, text);
}

interface SchemaFieldProps {
  readonly name: string;
  readonly schema: FieldSchema;
  readonly text: string;
  readonly error?: string;
  readonly onText: (text: string) => void;
}

/** A field for a property of a JSON Schema. */
export function SchemaField({ name, schema, text, error, onText }: SchemaFieldProps) {
  const id = useUniqueId();
  const attributes = {
    id,
    'aria-describedby': `${id}-error ${schema.description === undefined ? '' : `${id}-hint`}`.trim(),
    'aria-invalid': error === undefined ? undefined : 'true',
    onInput: (event: Event) => onText(textOf(event)),
  };
  const label = html`<label for=${id}><code>${name}</code></label>`;
  const check = (event: Event) => onText(String((event.currentTarget as HTMLInputElement).checked));
  return html`<div class="field">
    ${
      schema.type === 'boolean' && !choicesOf(schema)
        ? html`<span class="check"><input ...${attributes} type="checkbox" checked=${text === 'true'} onInput=${check} />${label}</span>`
        : html`${label}${control(schema, text, attributes)}`
    }
    <p class="fine outcome field-error" id="${id}-error" hidden=${error === undefined}>${error}</p>
    ${schema.description !== undefined && html`<p class="hint" id="${id}-hint">${schema.description}</p>`}
  </div>`;
}

function control(schema: FieldSchema, text: string, attributes: object) {
  const choices = choicesOf(schema);
  if (choices) {
    return html`<select ...${attributes} value=${text}>${choices.map(choice => {
      const value = JSON.stringify(choice);
      return html`<option key=${value} value=${value} selected=${value === text}>${String(choice)}</option>`;
    })}</select>`;
  }
  // Bounds are hints for the field's arrows; the server checks the value.
  if (isNumeric(schema))
    return html`<input ...${attributes} type="number" step=${schema.type === 'integer' ? 1 : 'any'} min=${schema.minimum}
      max=${schema.maximum} value=${text} />`;
  if (schema.type === 'string') return html`<input ...${attributes} type="text" value=${text} />`;
  return html`<textarea ...${attributes} rows="2" class="code" spellcheck=${false} value=${text} />`;
}
