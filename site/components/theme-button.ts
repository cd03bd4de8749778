import { useEffect, useState } from 'preact/hooks';
import { html } from './html.ts';
import { chooseTheme, followSystem, shownTheme, type Theme } from './theme.ts';

/** A button that names the theme it switches to. */
export function ThemeButton() {
  const [theme, show] = useState(shownTheme);
  useEffect(() => followSystem(() => show(shownTheme())), []);
  const next: Theme = theme === 'dark' ? 'light' : 'dark';
  const flip = () => {
    chooseTheme(next);
    show(next);
  };
  return html`<button type="button" class="quiet theme-switch" title="Switch to the ${next} theme" onClick=${flip}>
    <span class="visually-hidden">${next === 'dark' ? 'Dark theme' : 'Light theme'}</span>
  </button>`;
}
