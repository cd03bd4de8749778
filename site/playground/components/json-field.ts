import type { Json } from '../../../shared/json.ts';
import { fill, h, newId } from '../../components/element.ts';
import { locate } from '../register/locate.ts';

/** A text that is no JSON. */
export class NotJson extends Error {
  /** Position at which the parser stopped, if it reports one. */
  readonly position: number | undefined;

  constructor(what: string, cause: unknown) {
    const { message } = cause as Error;
    super(`${what} is not JSON: ${message}`, { cause });
    this.name = 'NotJson';
    const place = /position (\d+)/.exec(message);
    this.position = place ? Number(place[1]) : undefined;
  }
}

interface JsonFieldOptions {
  readonly label: string;
  readonly value: Json;
  readonly rows: number;
  /** Below the field. */
  readonly hint?: string;
  /** Without it the text need not be JSON. */
  readonly plain?: boolean;
  readonly oninput?: () => void;
}

/** A labeled field for JSON, or for other code, that shows what is wrong where it is. */
export class JsonField {
  readonly #label: string;
  readonly #plain: boolean;
  readonly #area: HTMLTextAreaElement;
  readonly #error = h('p', { class: 'field-error', id: newId(), hidden: true });
  readonly element: HTMLDivElement;

  constructor({ label, value, rows, hint, plain = false, oninput }: JsonFieldOptions) {
    const id = newId();
    const hintId = newId();
    this.#label = label;
    this.#plain = plain;
    this.#area = h('textarea', {
      id,
      rows,
      class: 'code',
      spellcheck: 'false',
      autocapitalize: 'off',
      autocomplete: 'off',
      wrap: plain ? 'off' : undefined,
      'aria-describedby': `${this.#error.id} ${hint ? hintId : ''}`.trim(),
      ...(oninput && { oninput }),
    });
    this.value = value;
    this.element = h(
      'div',
      { class: 'field' },
      h('label', { for: id }, label),
      this.#area,
      this.#error,
      hint !== undefined && h('p', { class: 'hint', id: hintId }, hint),
    );
  }

  set value(value: Json) {
    this.#area.value = this.#plain ? String(value) : JSON.stringify(value, null, 2);
  }

  /** Value of the text. @throws NotJson, after marking the field */
  get value(): Json {
    const { value: text } = this.#area;
    if (this.#plain) return text;
    try {
      const value = JSON.parse(text);
      this.clear();
      return value;
    } catch (cause) {
      const error = new NotJson(this.#label, cause);
      this.fail(error.message);
      throw error;
    }
  }

  /** Value on submission. @throws NotJson, after moving the cursor to the fault */
  submit(): Json {
    try {
      return this.value;
    } catch (error) {
      this.#area.focus();
      if (error instanceof NotJson && error.position !== undefined) {
        this.#select(error.position, error.position + 1);
      }
      throw error;
    }
  }

  focus(): void {
    this.#area.focus();
  }

  clear(): void {
    this.#area.removeAttribute('aria-invalid');
    this.#error.hidden = true;
  }

  fail(message: string): void {
    this.#area.setAttribute('aria-invalid', 'true');
    this.#error.hidden = false;
    fill(this.#error, message);
  }

  /** Goes to what a pointer names; to the whole text where it is no JSON. */
  reveal(pointer: string): void {
    const { value: text } = this.#area;
    let range = { start: 0, end: text.length };
    try {
      JSON.parse(text);
      range = locate(text, pointer);
    } catch {
      // Code, or JSON that was spoilt since: there is no narrower place to show.
    }
    this.#area.focus();
    this.#select(range.start, range.end);
  }

  /** Goes to a line, counted from 1. */
  revealLine(line: number): void {
    const lines = this.#area.value.split('\n');
    const start = lines.slice(0, line - 1).reduce((sum, { length }) => sum + length + 1, 0);
    this.#area.focus();
    this.#select(start, start + (lines[line - 1]?.length ?? 0));
  }

  #select(start: number, end: number): void {
    const area = this.#area;
    area.setSelectionRange(start, end);
    const line = area.value.slice(0, start).split('\n').length - 1;
    const lineHeight = Number.parseFloat(getComputedStyle(area).lineHeight);
    area.scrollTop = Math.max(0, line * lineHeight - area.clientHeight / 3);
  }
}
