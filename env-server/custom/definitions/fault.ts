import { invalidRequest, Problem, type Violation } from '../../problems.ts';

/** One part of a JSON pointer. */
export function escapePointer(key: string): string {
  return key.replaceAll('~', '~0').replaceAll('/', '~1');
}

/** JSON pointer to the definition in its request. */
const ROOT = '/definition';
const MAX_VIOLATIONS = 20;
const MAX_POINTER_LENGTH = 512;
const MAX_DETAIL_LENGTH = 1000;

/** Collects the faults of a definition; pointers are relative to it. */
export class DefinitionFaults {
  readonly #violations: Violation[] = [];

  /** @param detail a function where the text is slow to make, because only the first faults are kept */
  add(pointer: string, detail: string | (() => string)): void {
    if (this.full) return;
    const said = typeof detail === 'string' ? detail : detail();
    this.#violations.push({
      pointer: (ROOT + pointer).slice(0, MAX_POINTER_LENGTH).toWellFormed(),
      detail: said.slice(0, MAX_DETAIL_LENGTH).toWellFormed(),
    });
  }

  /** True if there are no faults. */
  get none(): boolean {
    return this.#violations.length === 0;
  }

  /** True if further faults are dropped. */
  get full(): boolean {
    return this.#violations.length >= MAX_VIOLATIONS;
  }

  /** @throws Problem `invalid_request` when there is any fault */
  raise(): void {
    const [first] = this.#violations;
    if (!first) return;
    throw new Problem('invalid_request', `${first.pointer}: ${first.detail}`, {
      violations: this.#violations,
    });
  }
}

/** A single fault. */
export function invalidDefinition(pointer: string, detail: string): Problem {
  return invalidRequest(ROOT + pointer, detail, `${ROOT}${pointer}: ${detail}`);
}
