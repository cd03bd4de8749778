import type { SamplingDistribution } from '../generation.ts';

/** No limit on the number of tokens: vLLM and SGLang, old and new, take −1 for it, and not all of them 0. */
const ALL_TOKENS = -1;

/**
 * A distribution as vLLM and SGLang have it, each field also where it changes nothing: an engine fills in those that are left out
 * from the `generation_config.json` of its model, so that the tokens would come from a narrower distribution than the loss takes.
 */
export function samplingFields(distribution: SamplingDistribution): Record<string, unknown> {
  const { temperature, topK, topP, logitBias = {}, badWords = [] } = distribution;
  const { minP = 0, repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0 } = distribution;
  return {
    temperature,
    top_p: topP,
    top_k: topK > 0 ? topK : ALL_TOKENS,
    min_p: minP,
    repetition_penalty: repetitionPenalty,
    presence_penalty: presencePenalty,
    frequency_penalty: frequencyPenalty,
    ...(Object.keys(logitBias).length > 0 ? { logit_bias: logitBias } : {}),
    ...(badWords.length > 0 ? { bad_words: badWords } : {}),
  };
}

const NEUTRAL: Readonly<Record<string, number>> = {
  top_p: 1,
  top_k: ALL_TOKENS,
  min_p: 0,
  repetition_penalty: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
};

/** As {@link samplingFields} for an endpoint of any kind, which may refuse fields it does not know: without those that change nothing. */
export function changedSamplingFields(distribution: SamplingDistribution): Record<string, unknown> {
  const fields = Object.entries(samplingFields(distribution));
  return Object.fromEntries(fields.filter(([name, value]) => NEUTRAL[name] !== value));
}
