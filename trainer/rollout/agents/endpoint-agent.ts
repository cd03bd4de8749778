import type { Completions } from '../../generation/endpoint/completions.ts';
import type { Agent } from './agent.ts';

/** Answers with a chat model behind an endpoint: whole responses, since such models cannot be primed. */
export function endpointAgent(endpoint: Pick<Completions, 'complete'>): Agent {
  return {
    async respond({ messages, sampling, seed }) {
      const { text, finishReason } = await endpoint.complete({
        messages: messages(),
        maxTokens: sampling.maxNewTokens,
        temperature: sampling.temperature,
        topP: sampling.topP,
        topK: sampling.topK,
        seed,
        stopStrings: sampling.stopStrings ?? [],
      });
      return { text, rawResponse: text, finishReason };
    },
    release() {},
  };
}
