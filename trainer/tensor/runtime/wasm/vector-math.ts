import { type Code, f32x4, i32, i32x4, type Local } from './code.ts';

/**
 * 2ˣ for x ≤ 0 into `power`, error 2e-7: x = n + r with |r| ≤ 1/2, Taylor's polynomial of 2ʳ, and n added to the exponent
 * bits. Adding 1.5 · 2²³ rounds x to n and leaves n in the lowest bits. From −127 down it is exactly 0: a denormal number
 * would slow every product with it a hundredfold.
 */
export function powerOfTwo(power: Local, shifted: Local, x: Code): Code[] {
  const smallest = -127;
  const degree = 6;
  const rounding = 1.5 * 2 ** 23;
  const mantissaBits = 23;
  const coefficients = [1];
  for (let k = 1; k <= degree; k++) coefficients.push((coefficients[k - 1] * Math.LN2) / k);
  const [highest, ...rest] = coefficients.reverse().map(f32x4.constant);
  const polynomial = rest.reduce<Code>((sum, c) => f32x4.multiplyAdd(sum, power.get, c), highest);
  return [
    power.set(f32x4.max(x, f32x4.constant(smallest))),
    shifted.set(f32x4.add(power.get, f32x4.constant(rounding))),
    power.set(f32x4.sub(power.get, f32x4.sub(shifted.get, f32x4.constant(rounding)))),
    power.set(i32x4.add(polynomial, i32x4.shl(shifted.get, i32.const(mantissaBits)))),
  ];
}

/** Folds the four lanes of a vector into one number. */
export function acrossLanes(vector: Code, combine: (a: Code, b: Code) => Code): Code {
  const [a, b, c, d] = [0, 1, 2, 3].map(index => f32x4.lane(vector, index));
  return combine(combine(a, b), combine(c, d));
}

/** The code of every index below `count`, one after the other. */
export function times<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}
