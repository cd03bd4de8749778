import type { Completions } from '../../generation/endpoint/completions.ts';
import type { Agent } from './agent.ts';

/** Answers with a chat model behind an endpoint: whole responses, unless the endpoint continues those that are begun. */
export function endpointAgent(endpoint: Pick<Completions, 'complete' | 'primes'>): Agent {
  return {
    async respond({ messages, sampling, seed, prime }) {
      const { text, finishReason } = await endpoint.complete({
        messages: messages(),
        prime,
        maxTokens: sampling.maxNewTokens,
        sampling,
        seed,
        stopStrings: sampling.stopStrings ?? [],
      });
      return { text, rawResponse: endpoint.primes ? prime + text : text, finishReason };
    },
    release() {},
  };
}
