/** Names as one parameter of an address. Commas part them; in a name a comma is `%2C` and a percent sign `%25`. */
export function listText(names: readonly string[]): string {
  return names.map(name => name.replaceAll('%', '%25').replaceAll(',', '%2C')).join();
}

/** Names in a parameter of an address; a percent sign before anything else is itself. */
export function listOf(text: string): string[] {
  return text.split(',').map(name => name.replaceAll('%2C', ',').replaceAll('%25', '%'));
}
