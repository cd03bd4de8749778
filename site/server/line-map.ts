/** Lines of one source in a script. */
export interface MappedLines {
  /** Address of the source, relative to the script. */
  readonly source: string;
  readonly lines: number;
}

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/** A number as source maps write it: base 64, five bits a digit, the sign in the lowest. */
function variableLength(value: number): string {
  let rest = value < 0 ? (-value << 1) | 1 : value << 1;
  let text = '';
  do {
    const more = rest >>> 5;
    text += DIGITS[(rest & 31) | (more > 0 ? 32 : 0)];
    rest = more;
  } while (rest > 0);
  return text;
}

/**
 * The source map (version 3) of a script. Its first line has no source. The lines of the sources follow one after the other,
 * and after each source one line without a source.
 */
export function lineMap(pieces: readonly MappedLines[]): string {
  let before = 0;
  const lines = pieces.flatMap(({ lines: count }, piece) => {
    const ofSource = count - 1;
    const mapped = Array.from({ length: ofSource }, (_, line) => {
      const source = line === 0 && piece > 0 ? 1 : 0;
      const back = line === 0 ? -before : 1;
      return `A${variableLength(source)}${variableLength(back)}A`;
    });
    before = ofSource - 1;
    return [...mapped, ''];
  });
  return JSON.stringify({
    version: 3,
    sources: pieces.map(({ source }) => source),
    mappings: `;${lines.join(';')}`,
  });
}
