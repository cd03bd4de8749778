import type { ComponentChildren, RefObject } from 'preact';
import { useEffect, useReducer, useRef, useState } from 'preact/hooks';
import { html } from './html.ts';
import { listen } from './store.ts';

interface MenuProps {
  readonly label: ComponentChildren;
  readonly children?: ComponentChildren;
}

/** A button that opens a panel; Escape and a click elsewhere close it. */
export function Menu({ label, children }: MenuProps) {
  const place = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event) => {
      const { current } = place;
      if (!current?.open) return;
      const isEscape = event instanceof KeyboardEvent && event.key === 'Escape';
      if (isEscape) current.querySelector('summary')!.focus();
      if (isEscape || (event.type === 'pointerdown' && !current.contains(event.target as Node)))
        current.open = false;
    };
    return listen({ pointerdown: close, keydown: close });
  }, []);
  return html`<details class="menu" ref=${place}><summary class="button">${label}</summary>
    <div class="panel menu-body">${children}</div></details>`;
}

/**
 * A value that does not change while a pointer is pressed on an element: an element that moves or disappears between press
 * and release gets no click. Of several changes in that time the last one is shown.
 */
export function useHeld<T>(place: RefObject<HTMLElement | null>, value: T): T {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const isPressed = useRef(false);
  const shown = useRef(value);
  if (!isPressed.current) shown.current = value;
  useEffect(() => {
    const press = ({ target }: Event) => {
      if (place.current?.contains(target as Node)) isPressed.current = true;
    };
    const release = () => {
      if (!isPressed.current) return;
      // The click follows the release in the same task.
      setTimeout(() => {
        isPressed.current = false;
        redraw(undefined);
      });
    };
    return listen({ pointerdown: press, pointerup: release, pointercancel: release });
  }, []);
  return shown.current;
}

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

/** Milliseconds, enough for a browser that asks where to save. */
const KEEP_MS = 60_000;

/** Offers a file for download; characters that file systems reject are replaced in its name. */
export function saveFile(name: string, content: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name.replace(/[^\w.-]+/g, '-');
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEEP_MS);
}
