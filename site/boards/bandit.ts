import type { VNode } from 'preact';
import { html } from '../components/html.ts';
import { type BoardKind, has } from './board-kind.ts';

interface BanditState {
  readonly arms: readonly string[];
  readonly pulled: { readonly name: string; readonly reward: number } | null;
}

/** Two machines with an arm each, to be pulled by a click. */
export const bandit: BoardKind<BanditState> = {
  name: 'bandit',
  fits: state => has(state, 'arms', 'pulled') && Array.isArray(state.arms),
  draw: ({ arms, pulled }, { act }) => html`<div class="board-panel bandit">
    ${arms.map(arm => {
      const isPulled = pulled?.name === arm;
      const face = machine(isPulled ? String(pulled.reward) : '?', isPulled);
      return act
        ? html`<button key=${arm} type="button" class="arm" data-board-focus aria-label=${`Pull ${arm}`} onClick=${() => act(arm)}>${face}<span>${arm}</span></button>`
        : html`<div key=${arm} class="arm">${face}<span>${arm}</span></div>`;
    })}
  </div>`,
};

function machine(shown: string, isPulled: boolean): VNode {
  return html`<svg class="machine" viewBox="0 0 120 120" aria-hidden="true">
    <rect class="case" x="10" y="12" width="84" height="100" rx="12" />
    <rect class="window" x="22" y="30" width="60" height="40" rx="6" />
    <text x="52" y="51">${shown}</text>
    <rect class="tray" x="30" y="86" width="44" height="10" rx="5" />
    <g class="lever ${isPulled ? 'down' : ''}"><path d="M94 62h8V30" /><circle cx="102" cy="26" r="7" /></g>
  </svg>`;
}
