import type { JsonObject } from '../../../shared/json.ts';
import { inSlices, type Sliced } from '../../../shared/slices.ts';
import type { TextGrammar, TokenTrie } from '../../generation/text-grammar.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { ApiError, badRequest } from '../openai/errors.ts';
import { StepBudget, textGrammarOf } from './text-automaton.ts';
import { tokenTrie } from './token-trie.ts';

/** Grammars that are kept. */
const MAX_KEPT = 32;
/** Schemas that wait to be compiled. */
const MAX_WAITING = 32;
const RETRY_AFTER_S = 1;
/** A schema in UTF-16 units of JSON: it becomes an automaton at once, while nobody else is answered. */
const LONGEST_SCHEMA = 2 ** 17;
/** Steps that a schema may take, see {@link StepBudget}. */
const MAX_STEPS = 2 ** 22;
/**
 * Automata of the JSON texts that fit a schema. They are compiled one at a time and in slices, so that the
 * server answers others meanwhile.
 */
export class JsonGrammars {
  readonly #tokenizer: Tokenizer;
  readonly #vocabularySize: number;
  readonly #stopTokenIds: readonly number[];
  readonly #mostSteps: number;
  /** Grammars, and why schemas have none, by the schema. */
  readonly #known = new Map<string, Promise<TextGrammar | RangeError>>();
  #turn: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #trie: TokenTrie | null = null;

  /** @param mostSteps steps from state to state that a schema may take */
  constructor(
    tokenizer: Tokenizer,
    vocabularySize: number,
    stopTokenIds: readonly number[],
    mostSteps = MAX_STEPS,
  ) {
    this.#mostSteps = mostSteps;
    this.#tokenizer = tokenizer;
    this.#vocabularySize = vocabularySize;
    this.#stopTokenIds = stopTokenIds;
  }

  /** @throws ApiError 400 for a schema that an automaton of this vocabulary cannot hold, 429 when too many others wait */
  async of(schema: JsonObject): Promise<TextGrammar> {
    const key = JSON.stringify(schema);
    if (key.length > LONGEST_SCHEMA) {
      throw badRequest(
        `the schema has ${key.length} characters; ${LONGEST_SCHEMA} are the most`,
        'response_format',
      );
    }
    let known = this.#known.get(key);
    if (known === undefined) {
      if (this.#waiting >= MAX_WAITING) {
        throw new ApiError(429, `${MAX_WAITING} schemas are being compiled; try again later`, {
          code: 'rate_limit_exceeded',
          retryAfterS: RETRY_AFTER_S,
        });
      }
      known = this.#compiled(schema);
      if (this.#known.size >= MAX_KEPT) this.#known.delete(this.#known.keys().next().value!);
      this.#known.set(key, known);
    }
    const result = await known;
    if (!(result instanceof RangeError)) return result;
    throw badRequest(`this schema cannot constrain responses: ${result.message}`, 'response_format');
  }

  #compiled(schema: JsonObject): Promise<TextGrammar | RangeError> {
    this.#waiting++;
    const result = this.#turn
      .then(() => inSlices(this.#compile(schema)))
      .catch(error => {
        if (error instanceof RangeError) return error;
        throw error;
      })
      .finally(() => this.#waiting--);
    this.#turn = result.catch(() => {});
    return result;
  }

  *#compile(schema: JsonObject): Sliced<TextGrammar> {
    this.#trie ??= yield* tokenTrie(this.#tokenizer, this.#vocabularySize);
    return yield* textGrammarOf(schema, this.#trie, this.#stopTokenIds, new StepBudget(this.#mostSteps));
  }
}
