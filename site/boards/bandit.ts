import type { VNode } from 'preact';
import { html } from '../components/html.ts';
import { type BoardKind, has } from './board-kind.ts';

interface BanditState {
  readonly arms: readonly string[];
  readonly pulled: { readonly name: string; readonly reward: number } | null;
}

/** Two slot machines with an arm each; a click pulls it. */
export const bandit: BoardKind<BanditState> = {
  name: 'bandit',
  fits: state => has(state, 'arms', 'pulled') && Array.isArray(state.arms),
  draw: ({ arms, pulled }, { act }) => html`<div class="board-panel bandit">
    ${arms.map(arm => {
      const isPulled = pulled?.name === arm;
      const face = machine(isPulled ? String(pulled.reward) : '?', isPulled);
      return act
        ? html`<button key=${arm} type="button" class="button arm" data-board-focus aria-label=${`Pull ${arm}`} onClick=${() => act(arm)}>${face}<span>${arm}</span></button>`
        : html`<div key=${arm} class="button arm">${face}<span>${arm}</span></div>`;
    })}
  </div>`,
};

function machine(shown: string, isPulled: boolean): VNode {
  return html`<svg class="board-svg machine" viewBox="0 0 120 120" aria-hidden="true">
    <rect fill="#b53a46" x="10" y="12" width="84" height="100" rx="12" />
    <rect fill="#fff8e6" x="22" y="30" width="60" height="40" rx="6" />
    <text style=${{ fill: '#4a2a10', fontSize: '24px' }} x="52" y="51">${shown}</text>
    <rect fill="#6d1f2b" x="30" y="86" width="44" height="10" rx="5" />
    <g class="lever ${isPulled ? 'down' : ''}"><path fill="none" stroke="var(--curve-8)" stroke-width="5" stroke-linecap="round" d="M94 62h8V30" /><circle fill="#e3a72f" cx="102" cy="26" r="7" /></g>
  </svg>`;
}
