/** A key that takes an action. */
export interface PlayKey {
  /** As {@link keyOf} names it. */
  readonly name: string;
  /** As buttons show it. */
  readonly hint: string;
}

const ARROWS: { readonly [direction: string]: PlayKey } = {
  up: { name: 'ArrowUp', hint: '↑' },
  down: { name: 'ArrowDown', hint: '↓' },
  left: { name: 'ArrowLeft', hint: '←' },
  right: { name: 'ArrowRight', hint: '→' },
  north: { name: 'ArrowUp', hint: '↑' },
  south: { name: 'ArrowDown', hint: '↓' },
  west: { name: 'ArrowLeft', hint: '←' },
  east: { name: 'ArrowRight', hint: '→' },
};
/** A letter, perhaps with a mark for the opposite action, as the turns of a cube are written. */
const LETTER = /^([A-Za-z])(['’]?)$/;
const DIGITS = '1234567890';

/** The key of every action, by position; undefined where there are more actions than keys. */
export function keysFor(names: readonly string[]): (PlayKey | undefined)[] {
  const arrows = names.map(name => ARROWS[name.toLowerCase()]);
  if (
    arrows.some(Boolean) &&
    new Set(arrows.filter(Boolean).map(key => key.name)).size === arrows.filter(Boolean).length
  ) {
    return withDigits(arrows);
  }
  const letters = names.map(letterKey);
  const found = letters.filter(key => key !== undefined);
  if (found.length === names.length && new Set(found.map(key => key.name)).size === names.length)
    return letters;
  return withDigits(names.map(() => undefined));
}

function letterKey(name: string): PlayKey | undefined {
  const match = LETTER.exec(name);
  if (!match) return undefined;
  const letter = match[1].toLowerCase();
  return match[2] === '' ? { name: letter, hint: letter } : { name: `Shift+${letter}`, hint: `⇧${letter}` };
}

function withDigits(keys: readonly (PlayKey | undefined)[]): (PlayKey | undefined)[] {
  let used = 0;
  return keys.map(key => {
    if (key) return key;
    const digit = DIGITS[used++];
    return digit === undefined ? undefined : { name: digit, hint: digit };
  });
}

/** The name of the key that was pressed; undefined where a shortcut of the browser was meant. */
export function keyOf(
  event: Pick<KeyboardEvent, 'key' | 'shiftKey' | 'ctrlKey' | 'altKey' | 'metaKey'>,
): string | undefined {
  if (event.ctrlKey || event.altKey || event.metaKey) return undefined;
  const { key } = event;
  return /^[a-z]$/i.test(key) ? `${event.shiftKey ? 'Shift+' : ''}${key.toLowerCase()}` : key;
}
