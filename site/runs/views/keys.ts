import { useLayoutEffect } from 'preact/hooks';

/** Calls the action of a key unless the reader types or a list takes the key. */
export function useKeys(actions: { readonly [key: string]: () => unknown }): void {
  // Installed before the first paint: a key pressed right then is meant for the page.
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const typing = (event.target as Element).closest?.('input, select, textarea, [data-own-keys]');
      const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      if (typing || event.ctrlKey || event.altKey || event.metaKey || !Object.hasOwn(actions, name)) return;
      event.preventDefault();
      actions[name]();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  });
}

/** Moves the cursor to the search field of the page and selects its text; does nothing on a page without one. */
export function focusSearch(): void {
  const field = document.querySelector<HTMLInputElement>('main input[type="search"]');
  field?.focus();
  field?.select();
}
