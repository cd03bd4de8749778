/** 97.5 % quantile of the standard normal: two-sided 95 %. */
const Z_95 = 1.959963984540054;

/**
 * Wilson's 95 % score interval of a share (Wilson, 1927): the success probabilities that `successes` of
 * `trials` are compatible with. Without trials: 0 to 1.
 */
export function wilsonInterval(successes: number, trials: number): readonly [low: number, high: number] {
  if (trials === 0) return [0, 1];
  const share = successes / trials;
  const spread = (Z_95 * Z_95) / trials;
  const center = (share + spread / 2) / (1 + spread);
  const half = (Z_95 / (1 + spread)) * Math.sqrt((share * (1 - share)) / trials + spread / (4 * trials));
  return [Math.max(0, center - half), Math.min(1, center + half)];
}
