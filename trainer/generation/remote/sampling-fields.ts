import type { SamplingDistribution } from '../generation.ts';

/** Value of `top_k` for no limit: all versions of vLLM and SGLang accept −1, and not all accept 0. */
const ALL_TOKENS = -1;

/**
 * A distribution in the fields of vLLM and SGLang, including fields without an effect: for missing ones an engine takes
 * the values in its model's `generation_config.json`, so tokens would come from a narrower distribution than the loss
 * assumes.
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

/**
 * Like {@link samplingFields}, for any kind of endpoint, which may reject unknown fields: leaves out fields without an
 * effect.
 */
export function changedSamplingFields(distribution: SamplingDistribution): Record<string, unknown> {
  const fields = Object.entries(samplingFields(distribution));
  return Object.fromEntries(fields.filter(([name, value]) => NEUTRAL[name] !== value));
}
