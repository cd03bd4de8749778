import type { JsonObject } from '../../../shared/json.ts';
import { type CharacterAutomaton, charactersOf, type Range } from './automaton.ts';

/** Digits before the point: integers of so many are exact in float64. */
const WHOLE_DIGITS = 15;
const LARGEST = 10 ** WHOLE_DIGITS - 1;
/** Digits after the point of a number with a bound, or more where the bound has more; and of all numbers at most. */
const FRACTION_DIGITS = 6;
const MAX_FRACTION_DIGITS = 15;
const MAX_EXPONENT_DIGITS = 2;

const DIGITS: readonly Range[] = [[0x30, 0x39]];
const NOT_ZERO: readonly Range[] = [[0x31, 0x39]];

/**
 * Adds the integers of a schema to an automaton: of at most {@link WHOLE_DIGITS} digits where it sets no bound, else up
 * to the bound, at most 2⁵³ − 1.
 * @throws RangeError for bounds that no integer fits
 */
export function addInteger(a: CharacterAutomaton, from: number, schema: JsonObject): number {
  const { low, high, isBounded } = boundsOf(schema);
  if (!isBounded) return anyInteger(a, from);
  const limit =
    Math.max(Math.abs(low.value), Math.abs(high.value)) > LARGEST ? Number.MAX_SAFE_INTEGER : LARGEST;
  const least = BigInt(Math.max(-limit, low.isExclusive ? Math.floor(low.value) + 1 : Math.ceil(low.value)));
  const most = BigInt(Math.min(limit, high.isExclusive ? Math.ceil(high.value) - 1 : Math.floor(high.value)));
  if (least > most) throw new RangeError('no integer lies between its minimum and maximum');
  return decimals(a, from, [least, most], 0);
}

/**
 * Adds the numbers of a schema: with a bound as decimals, without one of at most {@link WHOLE_DIGITS} digits before the
 * point, {@link MAX_FRACTION_DIGITS} after it, and an exponent.
 * @throws RangeError for bounds that no such decimal fits
 */
export function addNumber(a: CharacterAutomaton, from: number, schema: JsonObject): number {
  const { low, high, isBounded } = boundsOf(schema);
  if (!isBounded) return anyNumber(a, from);
  const given = [low.value, high.value].filter(Number.isFinite);
  const wanted = Math.max(FRACTION_DIGITS, ...given.map(fractionDigits));
  // More digits together than float64 has could round to a bound that is excluded.
  const room =
    WHOLE_DIGITS - Math.max(1, ...given.map(value => Math.trunc(Math.abs(value)).toFixed(0).length));
  const places = Math.max(0, Math.min(wanted, room));
  const least = scaled(low, places, 1);
  const most = scaled(high, places, -1);
  if (least > most) {
    throw new RangeError(`no number of ${places} decimals lies between its minimum and maximum`);
  }
  return decimals(a, from, [least, most], places);
}

interface Bound {
  readonly value: number;
  readonly isExclusive: boolean;
}

/** The bounds of a schema, infinite where it sets none; of two on one side the narrower. */
function boundsOf({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: JsonObject) {
  const all = Object.entries({ minimum, maximum, exclusiveMinimum, exclusiveMaximum });
  for (const [name, value] of all) {
    if (value === undefined || Number.isFinite(value)) continue;
    throw new RangeError(`${name} must be a number, got ${JSON.stringify(value)}`);
  }
  const bound = (inclusive = -Infinity, exclusive = -Infinity): Bound =>
    exclusive >= inclusive && exclusive > -Infinity
      ? { value: exclusive, isExclusive: true }
      : { value: inclusive, isExclusive: false };
  const negative = (value: unknown) => (value === undefined ? undefined : -(value as number));
  const upper = bound(negative(maximum), negative(exclusiveMaximum));
  return {
    low: bound(minimum as number | undefined, exclusiveMinimum as number | undefined),
    high: { ...upper, value: -upper.value },
    isBounded: all.some(([, value]) => value !== undefined),
  };
}

/** A bound in units of the last of some decimals, rounded toward the allowed side: 1 for a least one, -1 for a greatest. */
function scaled({ value, isExclusive }: Bound, places: number, side: 1 | -1): bigint {
  const limited = Math.max(-LARGEST, Math.min(LARGEST, value));
  const text = limited.toFixed(places);
  const near = BigInt(text.replace('.', ''));
  const over = side * (Number(text) - limited);
  return over < 0 || (over === 0 && isExclusive) ? near + BigInt(side) : near;
}

/** Digits after the point of a number as it is written. */
function fractionDigits(value: number): number {
  const [, fraction = '', exponent = '0'] = /^-?\d+(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value)) ?? [];
  return Math.min(MAX_FRACTION_DIGITS, Math.max(0, fraction.length - Number(exponent)));
}

function anyInteger(a: CharacterAutomaton, from: number): number {
  const signed = a.repeat(from, 0, 1, at => a.text(at, '-'));
  return a.any(signed, [
    at => a.text(at, '0'),
    at => a.repeat(a.set(at, NOT_ZERO), 0, WHOLE_DIGITS - 1, digit => a.set(digit, DIGITS)),
  ]);
}

function anyNumber(a: CharacterAutomaton, from: number): number {
  const digits = (at: number, most: number) => a.repeat(at, 1, most, digit => a.set(digit, DIGITS));
  const fraction = a.repeat(anyInteger(a, from), 0, 1, at => digits(a.text(at, '.'), MAX_FRACTION_DIGITS));
  return a.repeat(fraction, 0, 1, at => {
    const exponent = a.set(at, charactersOf('eE'));
    return digits(
      a.repeat(exponent, 0, 1, sign => a.set(sign, charactersOf('+-'))),
      MAX_EXPONENT_DIGITS,
    );
  });
}

/** Decimals from a least to a greatest one, both in units of the last place; zeros at the end may be left out. */
function decimals(
  a: CharacterAutomaton,
  from: number,
  [least, most]: readonly [least: bigint, most: bigint],
  places: number,
): number {
  const end = a.state();
  const known = new Map<string, number>();
  const one = (at: number, low: bigint, high: bigint) => {
    const whole = (value: bigint) => String(value / 10n ** BigInt(places)).length;
    for (let digits = whole(low); digits <= whole(high); digits++) {
      const first = digits === 1 ? 0n : 10n ** BigInt(digits - 1 + places);
      const last = 10n ** BigInt(digits + places) - 1n;
      const [from_, to] = [low > first ? low : first, high < last ? high : last].map(value =>
        String(value).padStart(digits + places, '0'),
      );
      between(a, at, { low: from_, high: to, whole: digits, known, end });
    }
  };
  if (least < 0n) one(a.text(from, '-'), most < 0n ? -most : 1n, -least);
  if (most >= 0n) one(from, least > 0n ? least : 0n, most);
  return end;
}

interface DigitRange {
  readonly low: string;
  /** As many digits. */
  readonly high: string;
  /** Digits before the point. */
  readonly whole: number;
  readonly end: number;
  /** States by the digits that may follow: ranges of the same places share them. */
  readonly known: Map<string, number>;
}

/** Links a state and the end by the digits of a range, with a point before those that follow the whole ones. */
function between(a: CharacterAutomaton, from: number, { low, high, whole, end, known }: DigitRange): void {
  /** @param isLow the digits so far are those of `low`, and one other than 0 follows there; @param isHigh likewise */
  const visit = (at: number, i: number, isLow: boolean, isHigh: boolean): void => {
    if (i >= whole && !isLow) a.link(at, end);
    if (i === low.length) return;
    const begin = i === whole ? a.text(at, '.') : at;
    const digits = (first: number, last: number, isLowest: boolean, isHighest: boolean): void => {
      const [left, right] = [low.slice(i + 1), high.slice(i + 1)];
      const tight = [isLowest && /[1-9]/.test(left), isHighest && /[0-8]/.test(right)] as const;
      const key = [whole - i, tight[0] ? left : '', tight[1] ? right : ''].join();
      const next = known.get(key) ?? a.state();
      a.link(a.set(begin, [[0x30 + first, 0x30 + last]]), next);
      if (known.has(key)) return;
      known.set(key, next);
      visit(next, i + 1, ...tight);
    };
    const [first, last] = [isLow ? Number(low[i]) : 0, isHigh ? Number(high[i]) : 9];
    if (first === last) {
      digits(first, last, isLow, isHigh);
      return;
    }
    if (isLow) digits(first, first, true, false);
    if (isHigh) digits(last, last, false, true);
    const [inner, outer] = [isLow ? first + 1 : first, isHigh ? last - 1 : last];
    if (inner <= outer) digits(inner, outer, false, false);
  };
  visit(from, 0, true, true);
}
