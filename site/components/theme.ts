import { useEffect, useState } from 'preact/hooks';
import { html } from './html.ts';

export type Theme = 'light' | 'dark';

/** Key under which a browser keeps the theme that its user chose; absent while the system's theme applies. */
const KEY = 'ragen-theme';
const DARK = matchMedia('(prefers-color-scheme: dark)');

const system = (): Theme => (DARK.matches ? 'dark' : 'light');

function chosen(): Theme | undefined {
  const stored = localStorage.getItem(KEY);
  return stored === 'light' || stored === 'dark' ? stored : undefined;
}

const current = (): Theme => chosen() ?? system();

function apply(): void {
  const theme = chosen();
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** A button that names the theme it switches to. Choosing the system's theme makes the page follow the system again. */
export function ThemeButton() {
  const [theme, show] = useState(current);
  useEffect(() => {
    const follow = () => show(current());
    DARK.addEventListener('change', follow);
    return () => DARK.removeEventListener('change', follow);
  }, []);
  const next: Theme = theme === 'dark' ? 'light' : 'dark';
  const flip = () => {
    if (next === system()) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
    apply();
    show(next);
  };
  return html`<button type="button" class="quiet theme-switch" title="Switch to the ${next} theme" onClick=${flip}>
    ${next === 'dark' ? 'Dark theme' : 'Light theme'}
  </button>`;
}

apply();
