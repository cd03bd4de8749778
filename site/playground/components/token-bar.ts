import { h, newId } from '../../components/element.ts';
import type { Client } from '../client/client.ts';

/** A field for the token; it comes up when the server asks for one and stays while one is in use. */
export function tokenBar(client: Client, onchange: () => void): HTMLElement {
  const id = newId();
  const hintId = newId();
  const field = h('input', {
    id,
    type: 'password',
    autocomplete: 'off',
    value: client.token,
    'aria-describedby': hintId,
  });
  const say = (text: string) => {
    hint.textContent = text;
  };
  const hint = h('p', { class: 'hint', id: hintId }, 'Kept in this tab until it is closed.');
  const use = (token: string) => {
    client.token = token;
    field.value = token;
    say(token === '' ? 'Forgotten.' : 'Kept in this tab until it is closed.');
    onchange();
  };
  const bar = h(
    'form',
    {
      class: 'row bar token-bar',
      'aria-label': 'Token',
      hidden: client.token === '',
      onsubmit: (event: SubmitEvent) => {
        event.preventDefault();
        use(field.value.trim());
      },
    },
    h('span', { class: 'pair' }, h('label', { for: id }, 'Token'), field),
    h('button', { type: 'submit', class: 'primary' }, 'Use'),
    h('button', { type: 'button', onclick: () => use('') }, 'Forget'),
    hint,
  );
  client.addEventListener('unauthorized', () => {
    bar.hidden = false;
    if (document.activeElement === document.body) field.focus();
    say(client.token === '' ? 'This server wants a token.' : 'This server does not know that token.');
  });
  return bar;
}
