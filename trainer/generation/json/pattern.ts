import type { Random } from '../../../shared/random.ts';
import { ANY, charactersOf, type Range } from './automaton.ts';

/** Characters of a pattern: reading it takes time that grows with them. */
const LONGEST_PATTERN = 1000;
/** Groups in groups, and times that a part may occur where the pattern sets a number. */
const DEEPEST_GROUP = 16;
const MAX_TIMES = 512;
/** Times that a part without a limit is drawn in addition to the least number. */
const DRAWN_TIMES = 3;

/** The texts of a regular expression. */
export type Pattern =
  | { readonly type: 'characters'; readonly ranges: readonly Range[] }
  | { readonly type: 'sequence'; readonly parts: readonly Pattern[] }
  | { readonly type: 'any'; readonly parts: readonly Pattern[] }
  | { readonly type: 'repeat'; readonly part: Pattern; readonly least: number; readonly most: number };

/** Halves of characters. */
const SURROGATES: Range = [0xd800, 0xdfff];
const CLASSES: Readonly<Record<string, readonly Range[]>> = {
  d: [[0x30, 0x39]],
  w: [
    [0x30, 0x39],
    [0x41, 0x5a],
    [0x5f, 0x5f],
    [0x61, 0x7a],
  ],
  s: [
    [0x09, 0x0d],
    [0x20, 0x20],
  ],
};
const LINE_ENDS = charactersOf('\n\r\u2028\u2029');
const CONTROLS: Readonly<Record<string, number>> = { n: 0x0a, r: 0x0d, t: 0x09 };

/**
 * Reads the regular expressions that describe whole texts (`^…$`) by characters, classes, groups, alternatives and
 * repetitions.
 * @throws RangeError naming what is not supported
 */
export function parsePattern(source: string): Pattern {
  return new PatternReader(source).whole();
}

/** Fewest and most characters of a pattern's texts. */
function lengthsOf(pattern: Pattern): readonly [least: number, most: number] {
  if (pattern.type === 'characters') return [1, 1];
  if (pattern.type === 'repeat') {
    const [least, most] = lengthsOf(pattern.part);
    return [least * pattern.least, most === 0 ? 0 : most * pattern.most];
  }
  const lengths = pattern.parts.map(lengthsOf);
  if (pattern.type === 'any') {
    return [Math.min(...lengths.map(([least]) => least)), Math.max(...lengths.map(([, most]) => most))];
  }
  return lengths.reduce<readonly [number, number]>(([a, b], [c, d]) => [a + c, b + d], [0, 0]);
}

/**
 * A pattern with no texts outside of two lengths; one that repeats a single character is narrowed to them.
 * @throws RangeError for another that allows some
 */
export function withLengths(pattern: Pattern, least: number, most: number): Pattern {
  const [shortest, longest] = lengthsOf(pattern);
  if (shortest >= least && longest <= most) return pattern;
  if (pattern.type === 'repeat' && pattern.part.type === 'characters') {
    const narrowed = {
      ...pattern,
      least: Math.max(least, pattern.least),
      // Each repetition is a state, so that a long text is as good as endless.
      most: most <= MAX_TIMES ? Math.min(most, pattern.most) : pattern.most,
    };
    if (narrowed.least <= narrowed.most) return narrowed;
  }
  throw new RangeError(
    `its pattern allows ${shortest} to ${longest} characters, minLength and maxLength ${least} to ${most}: set the lengths in the pattern, e.g. ^[a-z]{1,8}$`,
  );
}

/** The texts of a pattern in which parts without a limit occur seldom: those that are drawn. */
export function shortened(pattern: Pattern): Pattern {
  if (pattern.type === 'characters') return pattern;
  if (pattern.type !== 'repeat') return { ...pattern, parts: pattern.parts.map(shortened) };
  const { part, least, most } = pattern;
  return { ...pattern, part: shortened(part), most: Math.min(most, least + DRAWN_TIMES) };
}

/** A text of a pattern, in printable ASCII where there is a choice. */
export function drawText(pattern: Pattern, rng: Random): string {
  if (pattern.type === 'sequence') return pattern.parts.map(part => drawText(part, rng)).join('');
  if (pattern.type === 'any') return drawText(rng.choice(pattern.parts), rng);
  if (pattern.type === 'repeat') {
    const more = Math.min(pattern.most - pattern.least, DRAWN_TIMES);
    const times = pattern.least + rng.integer(more + 1);
    return Array.from({ length: times }, () => drawText(pattern.part, rng)).join('');
  }
  const printable = common(pattern.ranges, [[0x20, 0x7e]]);
  const [low, high] = rng.choice(printable.length > 0 ? printable : pattern.ranges);
  return String.fromCharCode(low + rng.integer(high - low + 1));
}

/** Characters of both. */
export const common = (some: readonly Range[], others: readonly Range[]): Range[] =>
  some.flatMap(([a, b]) =>
    others.flatMap(([c, d]): Range[] => {
      const [low, high] = [Math.max(a, c), Math.min(b, d)];
      return low <= high ? [[low, high]] : [];
    }),
  );

/** All characters of one UTF-16 code unit but some. */
function without(excluded: readonly Range[]): readonly Range[] {
  const left: Range[] = [];
  let from = 0;
  for (const [low, high] of [...excluded, SURROGATES].toSorted(([a], [b]) => a - b)) {
    if (low > from) left.push([from, low - 1]);
    from = Math.max(from, high + 1);
  }
  return from > 0xffff ? left : [...left, [from, 0xffff]];
}

class PatternReader {
  readonly #source: string;
  #at = 0;

  constructor(source: string) {
    this.#source = source;
  }

  whole(): Pattern {
    if (this.#source.length > LONGEST_PATTERN) this.#refuse(`it has more than ${LONGEST_PATTERN} characters`);
    if (!this.#takes('^')) this.#refuse('it must begin with ^ and end with $');
    const body = this.#sequence(0);
    if (this.#peek() === '|') this.#refuse('alternatives of the whole belong in a group, ^(…|…)$');
    if (!this.#takes('$') || this.#at < this.#source.length) {
      this.#refuse(
        this.#peek() === ')' ? 'a group is not open' : 'it must begin with ^ and end with $, nowhere else',
      );
    }
    return body;
  }

  #alternatives(depth: number): Pattern {
    if (depth > DEEPEST_GROUP) this.#refuse(`groups are nested more than ${DEEPEST_GROUP} deep`);
    const parts = [this.#sequence(depth)];
    while (this.#takes('|')) parts.push(this.#sequence(depth));
    return parts.length === 1 ? parts[0] : { type: 'any', parts };
  }

  #sequence(depth: number): Pattern {
    const parts: Pattern[] = [];
    for (let next = this.#peek(); next !== '' && !'|)$'.includes(next); next = this.#peek()) {
      const part = this.#repeated(this.#part(depth));
      // What has no characters would be drawn as often as what is around it.
      if (lengthsOf(part)[1] > 0) parts.push(part);
    }
    return parts.length === 1 ? parts[0] : { type: 'sequence', parts };
  }

  #part(depth: number): Pattern {
    const start = this.#peek();
    if ('*+?{'.includes(start)) this.#refuse(`nothing is repeated by ${start}`);
    if (!this.#takes('(')) return { type: 'characters', ranges: this.#characters() };
    if (this.#takes('?') && !this.#takes(':')) this.#refuse('a group may only begin with ( or (?:');
    const inner = this.#alternatives(depth + 1);
    if (!this.#takes(')')) this.#refuse('a group does not end');
    return inner;
  }

  #characters(): readonly Range[] {
    if (this.#takes('.')) return without(LINE_ENDS);
    if (!this.#takes('[')) return this.#escapedOr('^]}');
    const isNegated = this.#takes('^');
    const ranges: Range[] = [];
    while (!this.#takes(']')) {
      const first = this.#escapedOr('');
      const isRange = this.#peek() === '-' && this.#source[this.#at + 1] !== ']';
      if (!isRange) {
        ranges.push(...first);
        continue;
      }
      this.#at++;
      const last = this.#escapedOr('');
      const [[low], [high]] = [first[0], last[0]];
      if (first.length > 1 || last.length > 1 || first[0][1] !== low || last[0][1] !== high || low > high) {
        this.#refuse('a range in [] needs two characters in their order');
      }
      ranges.push([low, high]);
    }
    if (ranges.length === 0) this.#refuse('[] has no characters');
    return isNegated ? without(ranges) : ranges;
  }

  /** A character or an escape. */
  #escapedOr(refused: string): readonly Range[] {
    const start = this.#peek();
    this.#at++;
    if (start !== '\\') {
      const code = start.charCodeAt(0);
      if (start === '' || refused.includes(start) || (code >= SURROGATES[0] && code <= SURROGATES[1])) {
        this.#refuse(start === '' ? 'it ends too soon' : `${start} is not supported there`);
      }
      return [[code, code]];
    }
    const name = this.#peek();
    this.#at++;
    if (Object.hasOwn(CLASSES, name)) return CLASSES[name];
    const code = Object.hasOwn(CONTROLS, name) ? CONTROLS[name] : name.charCodeAt(0);
    if (!Object.hasOwn(CONTROLS, name) && !/^[!-/:-@[-`{-~]$/.test(name)) {
      this.#refuse(`\\${name} is not supported`);
    }
    return [[code, code]];
  }

  #repeated(part: Pattern): Pattern {
    const [least, most] = this.#times();
    if (least === 1 && most === 1) return part;
    if ('*+?{'.includes(this.#peek() || ' '))
      this.#refuse(`${this.#peek()} after a repetition is not supported`);
    // What repeats no character is read once, however often it is said.
    if (most === 0 || lengthsOf(part)[1] === 0) return { type: 'sequence', parts: [] };
    return { type: 'repeat', part, least, most };
  }

  #times(): readonly [least: number, most: number] {
    if (this.#takes('*')) return [0, ANY];
    if (this.#takes('+')) return [1, ANY];
    if (this.#takes('?')) return [0, 1];
    if (this.#peek() !== '{') return [1, 1];
    const found = /^\{(\d{1,4})(,(\d{1,4})?)?\}/.exec(this.#source.slice(this.#at));
    if (!found) this.#refuse('{} needs one or two numbers');
    this.#at += found[0].length;
    const least = Number(found[1]);
    const most = found[2] === undefined ? least : found[3] === undefined ? ANY : Number(found[3]);
    if (least > most || Math.max(least, most === ANY ? 0 : most) > MAX_TIMES) {
      this.#refuse(`${found[0]} must go up, to at most ${MAX_TIMES}`);
    }
    return [least, most];
  }

  #peek(): string {
    return this.#source[this.#at] ?? '';
  }

  #takes(character: string): boolean {
    if (this.#peek() !== character) return false;
    this.#at++;
    return true;
  }

  #refuse(reason: string): never {
    throw new RangeError(
      `the keyword "pattern" is not supported for ${JSON.stringify(this.#source.slice(0, 80))}: ${reason}`,
    );
  }
}
