/** A prompt with a changed text in it, which is still to be encoded. */
export interface EditedPrompt {
  /** Tokens before the changed text. */
  readonly before: readonly number[];
  /** Empty where nothing is new. */
  readonly text: string;
  /** Tokens after it. */
  readonly after: readonly number[];
}

/** Most tokens of a word that are encoded again because the word changed at an end of theirs. */
const MAX_WORD = 8;

/**
 * Finds the change in a prompt. All other tokens stay as they were sampled; a word that changed is encoded as a whole.
 * @param ids the tokens of the prompt
 * @param texts the text of each
 * @param edited the prompt's text after the change, with the line ends of a text field
 */
export function editedPrompt(ids: readonly number[], texts: readonly string[], edited: string): EditedPrompt {
  const typed = withFieldLineEnds(texts);
  const text = edited.replaceAll(/\r\n?/g, '\n');
  let first = 0;
  let start = 0;
  while (first < ids.length && text.startsWith(typed[first], start)) start += typed[first++].length;
  if (first === ids.length && start === text.length) return { before: ids, text: '', after: [] };
  let last = ids.length;
  let end = text.length;
  while (last > first && end - typed[last - 1].length >= start && text.endsWith(typed[last - 1], end))
    end -= typed[--last].length;
  for (let i = 0; i < MAX_WORD && first > 0 && isInWord(text, start) && typed[first - 1] !== ''; i++)
    start -= typed[--first].length;
  for (let i = 0; i < MAX_WORD && last < ids.length && isInWord(text, end) && typed[last] !== ''; i++)
    end += typed[last++].length;
  return { before: ids.slice(0, first), text: text.slice(start, end), after: ids.slice(last) };
}

/** True if a place in a text is between two letters or digits. */
function isInWord(text: string, at: number): boolean {
  return at > 0 && at < text.length && /^[\p{L}\p{N}]{2}$/u.test(text.slice(at - 1, at + 1));
}

/** Texts of consecutive tokens as a text field has them: it knows no other line end than `\n`. */
function withFieldLineEnds(texts: readonly string[]): string[] {
  return texts.map((text, i) => {
    const rest = text.startsWith('\n') && texts[i - 1]?.endsWith('\r') ? text.slice(1) : text;
    return rest.replaceAll(/\r\n?/g, '\n');
  });
}
