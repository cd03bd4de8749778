/** Characters that steer a terminal, break lines, or turn the direction of what follows. */
const STEERING = /[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/gu;
/** Those that lines of our own texts may hold. */
const LAYOUT: ReadonlySet<string> = new Set(['\n', '\t']);

/**
 * A text of others (a server, service, client or model) for a message or a terminal: characters that could steer the terminal or
 * pass for other lines are escaped.
 *
 * @example
 * printable('\x1b[2J'); // '\\u001b[2J'
 */
export function printable(text: string): string {
  return text.replace(STEERING, escaped);
}

/** A text of our own of several lines that may quote others: as {@link printable}, with its line breaks and tabs. */
export function printableLines(text: string): string {
  return text.replace(STEERING, character => (LAYOUT.has(character) ? character : escaped(character)));
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
