/** Peak figures of a card. */
export interface Limits {
  readonly tflops: number;
  readonly gigabytes: number;
}

/** By NVIDIA's data sheets, SXM forms: TFLOP/s in float32 and dense in float16 on tensor cores, GB/s of memory. */
const CARDS: readonly {
  readonly name: RegExp;
  readonly plain: number;
  readonly tensor: number;
  readonly gigabytes: number;
}[] = [
  { name: /h100/i, plain: 67, tensor: 989, gigabytes: 3350 },
  { name: /h200/i, plain: 67, tensor: 989, gigabytes: 4800 },
  { name: /a100/i, plain: 19.5, tensor: 312, gigabytes: 2039 },
];

/**
 * @param description a runtime's, which names the card and how it multiplies
 * @returns undefined for a card that is not known by name
 */
export function limitsOf(description: string): Limits | undefined {
  const card = CARDS.find(({ name }) => name.test(description));
  if (card === undefined) return undefined;
  return {
    tflops: description.includes('; tensor cores') ? card.tensor : card.plain,
    gigabytes: card.gigabytes,
  };
}
