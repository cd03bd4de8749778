import type { SamplingDistribution } from '../generation.ts';

/** A distribution as OpenAI's API has it, with vLLM's fields where that has none; what changes nothing is left out. */
export function samplingFields(distribution: SamplingDistribution): Record<string, unknown> {
  const { temperature, topK, topP, logitBias = {}, badWords = [] } = distribution;
  const { minP = 0, repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0 } = distribution;
  return {
    temperature,
    ...(topP < 1 ? { top_p: topP } : {}),
    ...(topK > 0 ? { top_k: topK } : {}),
    ...(minP > 0 ? { min_p: minP } : {}),
    ...(repetitionPenalty === 1 ? {} : { repetition_penalty: repetitionPenalty }),
    ...(presencePenalty === 0 ? {} : { presence_penalty: presencePenalty }),
    ...(frequencyPenalty === 0 ? {} : { frequency_penalty: frequencyPenalty }),
    ...(Object.keys(logitBias).length > 0 ? { logit_bias: logitBias } : {}),
    ...(badWords.length > 0 ? { bad_words: badWords } : {}),
  };
}
