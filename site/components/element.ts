/** Child of an element; `undefined` and `false` add nothing. */
export type Child = Node | string | number | false | undefined;

type Value = string | number | boolean | undefined | ((event: never) => void);

/**
 * Makes an element.
 * @param attributes by their names in HTML; true sets one without a value, false and undefined leave it out,
 * a function under `onclick` and the like listens
 * @example
 * h('button', { type: 'button', onclick: () => reset() }, 'Reset')
 */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: { readonly [name: string]: Value } = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function')
      element.addEventListener(name.slice('on'.length), value as EventListener);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...present(children));
  return element;
}

/** Puts children in the place of those that an element has. */
export function fill(element: Element, ...children: readonly Child[]): void {
  element.replaceChildren(...present(children));
}

function present(children: readonly Child[]): (Node | string)[] {
  return children
    .filter(child => child !== undefined && child !== false)
    .map(child => (typeof child === 'number' ? String(child) : child));
}

let ids = 0;

/** An id that no other element of the page has, for labels and descriptions. */
export function newId(): string {
  return `e${++ids}`;
}
