import type { RefObject } from 'preact';
import { useState } from 'preact/hooks';
import { html } from './html.ts';

const SHOWN_MS = 2000;

/**
 * Puts the text of an element into the clipboard, or selects it where the browser keeps its clipboard from the page.
 * @param say shows what happened, and after a while again what the button does
 */
async function copyText(source: HTMLElement, say: (text: string) => void): Promise<void> {
  try {
    await navigator.clipboard.writeText(source.textContent ?? '');
    say('Copied');
  } catch {
    getSelection()?.selectAllChildren(source);
    say('Press Ctrl+C');
  }
  setTimeout(() => say('Copy'), SHOWN_MS);
}

interface CopyButtonProps {
  /** Element that holds the text. */
  readonly source: RefObject<HTMLElement | null>;
  readonly what: string;
}

/** A button that puts text into the clipboard and says so. */
export function CopyButton({ source, what }: CopyButtonProps) {
  const [text, say] = useState('Copy');
  return html`<button type="button" class="quiet small" onClick=${() => copyText(source.current!, say)}>
    <span aria-live="polite">${text}</span><span class="visually-hidden"> ${what}</span>
  </button>`;
}
