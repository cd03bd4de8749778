export type Theme = 'light' | 'dark';

/** Key under which a browser keeps the chosen theme; absent while the system's theme applies. */
const KEY = 'ragen-theme';
const DARK = matchMedia('(prefers-color-scheme: dark)');

const system = (): Theme => (DARK.matches ? 'dark' : 'light');

function chosen(): Theme | undefined {
  const stored = localStorage.getItem(KEY);
  return stored === 'light' || stored === 'dark' ? stored : undefined;
}

export const shownTheme = (): Theme => chosen() ?? system();

/** Shows a theme. Choosing the system's theme makes the page follow the system again. */
export function chooseTheme(theme: Theme): void {
  if (theme === system()) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme);
  apply();
}

/** Calls back when the system's theme changes, until the returned function is called. */
export function followSystem(changed: () => void): () => void {
  DARK.addEventListener('change', changed);
  return () => DARK.removeEventListener('change', changed);
}

function apply(): void {
  const theme = chosen();
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

// Pages load this file alone before they paint, so it imports nothing.
apply();
