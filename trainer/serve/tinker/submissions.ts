import { type ApiError, badRequest } from '../openai/errors.ts';

/** Outcomes of numbered submissions, for those that come again: each is done once. The oldest are forgotten. */
export class Submissions<Key extends string | number, Outcome> {
  readonly #field: string;
  readonly #kind: string;
  readonly #max: number;
  readonly #known = new Map<Key, { readonly content: string; readonly outcome: Outcome }>();

  /**
   * @param field of the number, for errors
   * @param kind of what is submitted
   */
  constructor(field: string, kind: string, max: number) {
    this.#field = field;
    this.#kind = kind;
    this.#max = max;
  }

  get(key: Key): Outcome | undefined {
    return this.#known.get(key)?.outcome;
  }

  get outcomes(): Outcome[] {
    return [...this.#known.values()].map(({ outcome }) => outcome);
  }

  /**
   * The outcome of the first submission with a number.
   * @param content hash; equal hashes are the same submission
   * @param isOver true where it has to be done again
   * @throws ApiError 400 where the number was used for other content
   */
  once(key: Key, content: string, submit: () => Outcome, isOver?: (outcome: Outcome) => boolean): Outcome {
    const known = this.#known.get(key);
    if (known && known.content !== content) throw this.usedBefore(key);
    if (known && !isOver?.(known.outcome)) return known.outcome;
    const outcome = submit();
    this.#known.set(key, { content, outcome });
    if (this.#known.size > this.#max) this.#known.delete(this.#known.keys().next().value!);
    return outcome;
  }

  usedBefore(key: Key): ApiError {
    const fault = `${this.#field} ${key} was used for another ${this.#kind}`;
    return badRequest(`${fault}: count ${this.#field} on`, this.#field);
  }
}
