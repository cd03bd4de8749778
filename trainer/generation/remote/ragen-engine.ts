import type { TokenGrammar } from '../grammar.ts';
import {
  type EngineCall,
  EngineError,
  type EngineHttpOptions,
  type EngineReply,
  refusalDetails,
} from './engine-client.ts';
import { completionFields, VllmEngine } from './engines.ts';

/** Calls in one request: few, so that one slow connection delays little. */
const MAX_CALLS = 32;

/** A line of the reply. */
interface Line {
  readonly index: number;
  readonly token_ids?: readonly number[];
  readonly logprobs?: readonly number[];
  readonly finish_reason?: string;
  readonly error?: { readonly message: string; readonly status: number };
}

/** A call that waits for its response. */
class Waiting {
  readonly call: EngineCall;
  readonly reply = Promise.withResolvers<EngineReply>();
  open = true;

  constructor(call: EngineCall) {
    this.call = call;
  }

  resolve(reply: EngineReply): void {
    this.open = false;
    this.reply.resolve(reply);
  }

  reject(error: unknown): void {
    this.open = false;
    this.reply.reject(error);
  }
}

/**
 * `ragen serve`: calls of one turn of the event loop share one request, and each response comes back when it is
 * complete. An agent's responses are so short that a request for each would cost more than its tokens.
 */
export class RagenEngine extends VllmEngine {
  #waiting: Waiting[] = [];

  constructor(options: EngineHttpOptions) {
    super(options, true);
  }

  override generate(call: EngineCall, signal: AbortSignal): Promise<EngineReply> {
    const waiting = new Waiting(call);
    if (this.#waiting.length === 0) setImmediate(() => this.#flush());
    this.#waiting.push(waiting);
    const abort = () => waiting.reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    return waiting.reply.promise.finally(() => signal.removeEventListener('abort', abort));
  }

  #flush(): void {
    const groups = Map.groupBy(
      this.#waiting.filter(({ open }) => open),
      ({ call: { weights } }) => weights,
    );
    this.#waiting = [];
    for (const [weights, members] of groups) {
      for (const [grammar, alike] of Map.groupBy(members, ({ call }) => call.grammar)) {
        for (let at = 0; at < alike.length; at += MAX_CALLS) {
          void this.#send(weights, grammar, alike.slice(at, at + MAX_CALLS));
        }
      }
    }
  }

  async #send(
    weights: string | null,
    grammar: TokenGrammar | undefined,
    batch: readonly Waiting[],
  ): Promise<void> {
    const left = new AbortController();
    for (const { reply } of batch) {
      const settled = () => {
        if (!batch.some(({ open }) => open)) left.abort();
      };
      reply.promise.then(settled, settled);
    }
    const body = {
      ...(weights === null ? {} : { model: weights }),
      ...(grammar === undefined ? {} : { token_grammar: grammar }),
      requests: batch.map(({ call }) => ({ prompt: call.promptIds, ...completionFields(call) })),
    };
    try {
      await this.http.postLines('/v1/completions/batch', body, left.signal, line =>
        this.#take(line as unknown as Line, batch),
      );
      throw this.fault('the reply ended before all responses had come');
    } catch (error) {
      for (const waiting of batch) if (waiting.open) waiting.reject(error);
    }
  }

  #take({ index, token_ids, logprobs, finish_reason, error }: Line, batch: readonly Waiting[]): void {
    const waiting = batch[index];
    if (!waiting?.open) return;
    if (error !== undefined) {
      const { message, status } = error;
      waiting.reject(new EngineError(`${this.url}: ${message}`, refusalDetails(status)));
    } else if (Array.isArray(token_ids) && Array.isArray(logprobs)) {
      waiting.resolve({
        tokenIds: token_ids,
        logProbs: logprobs,
        finishReason: finish_reason === 'length' ? 'length' : 'stop',
      });
    } else waiting.reject(this.fault('a line has neither tokens nor an error'));
  }
}
