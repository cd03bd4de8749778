/** Each word of code for asyncio with its word in code for threads; comments change with the code. */
const WORDS: readonly (readonly [RegExp, string])[] = [
  [/\basync (?=def |for |with )/g, ''],
  [/\bawait /g, ''],
  [/\b__a(?=enter__|exit__)/g, '__'],
  [/\baclose\b/g, 'close'],
  [/\bAsync(?=[A-Z])/g, 'Sync'],
  [/\b_Async(?=[A-Z])/g, '_Sync'],
  [/\basync_(?=[a-z])/g, 'sync_'],
  [/\bfor asyncio\b/g, 'for threads'],
  [/ as a coroutine\b/g, ''],
];

/**
 * A Python module for threads, from the one for asyncio.
 * @throws where something of asyncio would be left
 */
export function unasync(source: string): string {
  const text = WORDS.reduce((text, [word, instead]) => text.replace(word, instead), source);
  const left = /^.*(?:async|await|coroutine).*$/im.exec(text);
  if (left)
    throw new Error(`a module for threads cannot have this line, say it another way: ${left[0].trim()}`);
  return text;
}
