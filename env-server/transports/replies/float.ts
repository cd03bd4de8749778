/**
 * A number as JSON that typed clients read as a floating-point one: `1.0`, not `1`.
 *
 * @example
 * floatText(1) // '1.0'
 */
export function floatText(value: number): string {
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}
