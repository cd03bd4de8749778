/** Characters that control a terminal, break lines, or change text direction. */
const STEERING = /[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/gu;
/** Control characters allowed in our own multi-line texts. */
const LAYOUT: ReadonlySet<string> = new Set(['\n', '\t']);

/**
 * Makes foreign text (from a server, service, client or model) safe for a message or a terminal: characters that could
 * control the terminal or fake other lines are escaped.
 * @example printable('\x1b[2J'); // '\\u001b[2J'
 */
export function printable(text: string): string {
  return text.replace(STEERING, escaped);
}

/** Like {@link printable}, but keeps line breaks and tabs: for our own multi-line texts that may quote foreign ones. */
export function printableLines(text: string): string {
  return text.replace(STEERING, character => (LAYOUT.has(character) ? character : escaped(character)));
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
