/**
 * A flag's value.
 * @throws RangeError unless it is an integer above 0
 */
export function positiveInteger(name: string, text: string | undefined): number {
  const value = Number(text);
  if (Number.isInteger(value) && value > 0) return value;
  throw new RangeError(`--${name} must be a positive integer, got ${text}`);
}
