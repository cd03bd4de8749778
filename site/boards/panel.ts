import type { VNode } from 'preact';
import type { Json } from '../../shared/json.ts';
import { html } from '../components/html.ts';

interface Actor {
  readonly act?: (action: Json) => void;
}

/**
 * A row of actions as buttons; plain words where the board is only viewed.
 * @param prefix part of each action that its button omits
 */
export function actionButtons(actions: readonly string[], { act }: Actor, prefix = ''): VNode {
  const text = (action: string) => action.slice(prefix.length);
  return html`<div class="row" role=${act ? 'group' : undefined} aria-label=${act ? 'Actions of the board' : undefined}>
    ${actions.map(action =>
      act
        ? html`<button key=${action} type="button" class="small" onClick=${() => act(action)}>${text(action)}</button>`
        : html`<span key=${action} class="chip">${text(action)}</span>`,
    )}
  </div>`;
}

/** A row of numbers or words as cards. */
export function cards(texts: readonly (string | number)[]): VNode {
  return html`<ul class="row">${texts.map(text => html`<li class="number-card">${text}</li>`)}</ul>`;
}
