import { h } from './element.ts';

const SHOWN_MS = 2000;

/**
 * Puts the text of an element into the clipboard, or selects it where the browser keeps its clipboard from the page.
 * @param say shows what happened, and after a while again what the button does
 */
export async function copyText(source: HTMLElement, say: (text: string) => void): Promise<void> {
  try {
    await navigator.clipboard.writeText(source.textContent ?? '');
    say('Copied');
  } catch {
    getSelection()?.selectAllChildren(source);
    say('Press Ctrl+C');
  }
  setTimeout(() => say('Copy'), SHOWN_MS);
}

/**
 * A button that puts text into the clipboard and says so.
 * @param source the element that holds the text; selected where the browser keeps its clipboard from the page
 */
export function copyButton(source: HTMLElement, what: string): HTMLButtonElement {
  const label = h('span', { 'aria-live': 'polite' }, 'Copy');
  const button = h(
    'button',
    { type: 'button', class: 'quiet small' },
    label,
    h('span', { class: 'visually-hidden' }, ` ${what}`),
  );
  button.addEventListener('click', () =>
    copyText(source, text => {
      label.textContent = text;
    }),
  );
  return button;
}
