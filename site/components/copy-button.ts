import type { RefObject } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { html } from './html.ts';

const SHOWN_MS = 2000;

/**
 * Copies the text of an element to the clipboard, or selects it where the browser denies access to the clipboard.
 * @param say shows the result, and after a while the button's label again
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

/** A button that copies text to the clipboard and says so. */
export function CopyButton({ source, what }: CopyButtonProps) {
  const [text, say] = useState('Copy');
  return html`<button type="button" class="quiet small" onClick=${() => copyText(source.current!, say)}>
    <span aria-live="polite">${text}</span><span class="visually-hidden"> ${what}</span>
  </button>`;
}

/** A command, and a button that copies it. */
export function Command({ text }: { readonly text: string }) {
  const code = useRef<HTMLElement>(null);
  return html`<div class="command"><pre class="cut grow" title=${text}><code ref=${code}>${text}</code></pre>
    <${CopyButton} source=${code} what="the command ${text}" /></div>`;
}
