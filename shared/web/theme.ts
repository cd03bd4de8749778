import { h } from './element.ts';

export type Theme = 'light' | 'dark';

/** Where a browser keeps the theme that its user chose; absent while the system's holds. */
const KEY = 'ragen-theme';
const DARK = matchMedia('(prefers-color-scheme: dark)');

const system = (): Theme => (DARK.matches ? 'dark' : 'light');

function chosen(): Theme | undefined {
  const stored = localStorage.getItem(KEY);
  return stored === 'light' || stored === 'dark' ? stored : undefined;
}

function apply(): void {
  const theme = chosen();
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** A button that switches between light and dark; the system's choice is followed again once it is chosen. */
export function themeSwitch(): HTMLButtonElement {
  const button = h('button', { type: 'button', class: 'quiet theme-switch', onclick: flip }, 'Dark');
  const show = () => button.setAttribute('aria-pressed', String((chosen() ?? system()) === 'dark'));
  function flip(): void {
    const next: Theme = (chosen() ?? system()) === 'dark' ? 'light' : 'dark';
    if (next === system()) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
    apply();
    show();
  }
  DARK.addEventListener('change', show);
  show();
  return button;
}

apply();
