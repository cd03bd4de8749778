import type { JsonObject } from '../../../shared/json.ts';
import type { Generation, SamplingSettings, StreamedToken } from '../../generation/generation.ts';
import type { TokenGrammar } from '../../generation/grammar.ts';
import type { TextGrammar } from '../../generation/text-grammar.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import type { PromptEncoder } from './text/prompt-encoder.ts';

/** A prompt to continue. */
export interface TokenRequest {
  readonly promptIds: readonly number[];
  readonly sampling: SamplingSettings;
  readonly seed: number;
  readonly grammar?: TokenGrammar | TextGrammar;
  /** Most probable tokens to report at each position; absent: none. */
  readonly topLogProbs?: number;
}

/** A model that answers the requests of OpenAI's API: a policy that is served, or one that is trained with an agent. */
export interface LanguageModel {
  readonly name: string;
  readonly tokenizer: Tokenizer;
  /** Tokenizes prompts of any length with it, and renders messages by its template. */
  readonly encoder: PromptEncoder;
  /** Longest prompt and response together, in tokens. */
  readonly maxSequenceLength: number;
  /** Ids of a prompt are below this. */
  readonly vocabularySize: number;
  /** Tokens that end a response unless the request ignores them. */
  readonly stopTokenIds: readonly number[];
  /** Identity of the weights under this name, e.g. their version; clients read it as `system_fingerprint`. */
  readonly fingerprint: string;

  /**
   * Samples a continuation.
   * @param signal aborted when the client went away: the work ends and its result is not looked at
   * @param watch called with each token soon after it is sampled
   */
  generate(
    request: TokenRequest,
    signal: AbortSignal,
    watch?: (token: StreamedToken) => void,
  ): Promise<Generation>;

  /** log-probabilities of the tokens given those before them, 0 for the first; absent where it cannot score. */
  score?(tokenIds: readonly number[]): Promise<Float32Array>;

  /**
   * The automaton of the JSON texts that fit a schema; absent where responses cannot be constrained.
   * @throws ApiError 400 for a schema that it cannot hold
   */
  jsonGrammar?(schema: JsonObject): Promise<TextGrammar>;
}
