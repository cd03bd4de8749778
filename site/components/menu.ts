import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { html } from './html.ts';

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
    addEventListener('pointerdown', close);
    addEventListener('keydown', close);
    return () => {
      removeEventListener('pointerdown', close);
      removeEventListener('keydown', close);
    };
  }, []);
  return html`<details class="menu" ref=${place}><summary class="button">${label}</summary>
    <div class="panel menu-body">${children}</div></details>`;
}
