import type { JsonObject } from '../../../shared/json.ts';
import { RecentMap } from '../../../shared/remembered.ts';
import { SerialQueue } from '../../../shared/scheduling/serial-queue.ts';
import { inSlices, type Sliced } from '../../../shared/slices.ts';
import type { TextGrammar, TokenTrie } from '../../generation/grammar.ts';
import { StepBudget, textGrammarOf, tokenTrie } from '../../generation/json/text-grammar.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { badRequest, tooMany } from '../openai/errors.ts';

/** Most cached grammars. */
const MAX_KEPT = 32;
/** Most schemas that wait for compilation. */
const MAX_WAITING = 32;
/** Longest schema in UTF-16 units of JSON: it becomes an automaton in one step, which blocks other requests. */
const LONGEST_SCHEMA = 2 ** 17;
/** Most steps of a schema, see {@link StepBudget}. */
const MAX_STEPS = 2 ** 22;
/**
 * Automata of the JSON texts that fit a schema. They are compiled one at a time and in slices, so the server answers
 * other requests meanwhile.
 */
export class JsonGrammars {
  readonly #tokenizer: Tokenizer;
  readonly #vocabularySize: number;
  readonly #stopTokenIds: readonly number[];
  readonly #mostSteps: number;
  /** Grammars, and why schemas have none, by the schema. */
  readonly #known = new RecentMap<string, Promise<TextGrammar | RangeError>>(MAX_KEPT);
  readonly #queue = new SerialQueue();
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
        `the schema has ${key.length} characters; the limit is ${LONGEST_SCHEMA}`,
        'response_format',
      );
    }
    let known = this.#known.get(key);
    if (known === undefined) {
      if (this.#waiting >= MAX_WAITING) {
        throw tooMany(`${MAX_WAITING} schemas are being compiled; try again later`);
      }
      known = this.#compiled(schema);
      this.#known.set(key, known);
    }
    const result = await known;
    if (!(result instanceof RangeError)) return result;
    throw badRequest(`this schema cannot constrain responses: ${result.message}`, 'response_format');
  }

  #compiled(schema: JsonObject): Promise<TextGrammar | RangeError> {
    this.#waiting++;
    return this.#queue
      .run(() => inSlices(this.#compile(schema)))
      .catch(error => {
        if (error instanceof RangeError) return error;
        throw error;
      })
      .finally(() => this.#waiting--);
  }

  *#compile(schema: JsonObject): Sliced<TextGrammar> {
    this.#trie ??= yield* tokenTrie(this.#tokenizer, this.#vocabularySize);
    return yield* textGrammarOf(schema, this.#trie, this.#stopTokenIds, new StepBudget(this.#mostSteps));
  }
}
