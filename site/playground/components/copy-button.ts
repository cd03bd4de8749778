import { h } from '../../components/element.ts';

const SHOWN_MS = 2000;

/**
 * A button that puts text into the clipboard and says so.
 * @param source the element that holds the text; selected where the browser keeps its clipboard from the page
 */
export function copyButton(source: HTMLElement, what: string): HTMLButtonElement {
  const label = h('span', { 'aria-live': 'polite' }, 'Copy');
  const button = h(
    'button',
    { type: 'button', class: 'quiet small' },
    label,
    h('span', { class: 'visually-hidden' }, ` ${what}`),
  );
  const say = (text: string) => {
    label.textContent = text;
    setTimeout(() => {
      label.textContent = 'Copy';
    }, SHOWN_MS);
  };
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(source.textContent ?? '');
      say('Copied');
    } catch {
      getSelection()?.selectAllChildren(source);
      say('Press Ctrl+C');
    }
  });
  return button;
}
