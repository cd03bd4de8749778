import { type Item, LETTERS } from './records.ts';

/** True if an answer is right: a choice by letter or text; other answers by text, or by value where both are numbers. */
export function isRight(item: Item, answer: string): boolean {
  const given = strip(answer);
  if (item.choices.length > 0) return choiceOf(item.choices, given) === LETTERS.indexOf(item.answer);
  const wanted = strip(item.answer);
  if (fold(given) === fold(wanted)) return true;
  const [a, b] = [numberOf(given), numberOf(wanted)];
  return a !== null && a === b;
}

/** Without "the answer is" in front and a full stop behind. */
function strip(answer: string): string {
  return answer
    .trim()
    .replace(/^(?:the )?(?:correct )?answer(?: is)?\s*:?\s*/i, '')
    .replace(/\.$/, '')
    .trim();
}

function fold(text: string): string {
  return text.toLowerCase().replaceAll(/\s+/g, '');
}

function numberOf(text: string): number | null {
  const bare = text.replaceAll(/[$€£%,\s]/g, '');
  return /^[-+]?(?:\d+(?:\.\d*)?|\.\d+)$/.test(bare) ? Number(bare) : null;
}

/** The choice that an answer such as `B`, `(b)`, `B) text` or `text` names, or −1. */
function choiceOf(choices: readonly string[], given: string): number {
  const byText = choices.findIndex(choice => fold(strip(choice)) === fold(given));
  if (byText >= 0) return byText;
  const [, letter, rest] = /^\(?([A-J])(?:[).:](.*))?$/is.exec(given) ?? [];
  if (letter === undefined) return -1;
  const index = LETTERS.indexOf(letter.toUpperCase());
  if (index >= choices.length) return -1;
  return rest?.trim() && fold(rest.trim()) !== fold(strip(choices[index])) ? -1 : index;
}
