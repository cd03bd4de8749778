let darkQuery: MediaQueryList | undefined;
/** Asked when first needed: tests load this file outside a browser. */
const dark = (): MediaQueryList => (darkQuery ??= matchMedia('(prefers-color-scheme: dark)'));
/** Cached colors of a theme: reading them for each chart makes the browser compute all styles again. */
const known = { theme: '', values: new Map<string, string>() };

function fromStyles(name: string, read: () => string): string {
  const theme = `${document.documentElement.dataset.theme} ${dark().matches}`;
  if (known.theme !== theme) {
    known.theme = theme;
    known.values.clear();
  }
  const value = known.values.get(name) ?? read();
  known.values.set(name, value);
  return value;
}

export const variable = (name: string): string =>
  fromStyles(`${name} as it is`, () =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim(),
  );

/** A color of the current theme as `#rrggbb`, the form that canvases accept. */
export function color(name: string): string {
  return fromStyles(name, () => {
    const probe = document.createElement('span');
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const [r, g, b] = getComputedStyle(probe).color.match(/\d+/g)!.map(Number);
    probe.remove();
    return `#${[r, g, b].map(part => part.toString(16).padStart(2, '0')).join('')}`;
  });
}

/**
 * Calls back when the theme changes.
 * @returns stops that
 */
export function onTheme(listener: () => void): () => void {
  dark().addEventListener('change', listener);
  const observer = new MutationObserver(listener);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
  return () => {
    observer.disconnect();
    dark().removeEventListener('change', listener);
  };
}
