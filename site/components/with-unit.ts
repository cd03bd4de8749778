const NO_BREAK_SPACE = '\u00a0';

/** A number with its unit on the same line: `42 %`, `45 s`. */
export function withUnit(value: number | string, unit: string): string {
  return `${value}${NO_BREAK_SPACE}${unit}`;
}
