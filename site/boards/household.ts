import type { VNode } from 'preact';
import { html } from '../components/html.ts';
import { actionButtons, type BoardKind, has } from './board-kind.ts';

interface HouseholdState {
  readonly task: { readonly type: string; readonly thing: string; readonly receptacle: string };
  readonly room: string;
  /** The furniture where the player stands; null in the middle of the room. */
  readonly at: string | null;
  readonly carries: string | null;
  readonly report: string;
  readonly receptacles: readonly { readonly name: string; readonly open: boolean }[];
  /** Possible actions. */
  readonly admissible: readonly string[];
}

const GO_TO = 'go to ';

/** A room of a household: its furniture, the player's position, the carried thing; furniture and actions are clickable. */
export const household: BoardKind<HouseholdState> = {
  name: 'household',
  fits: state => has(state, 'task', 'room', 'at', 'carries', 'receptacles', 'admissible'),
  draw({ task, room, at, carries, report, receptacles, admissible }, context) {
    const given = /^Task: (.+)$/m.exec(context.text ?? '')?.[1];
    const others = admissible.filter(action => !action.startsWith(GO_TO));
    return html`<div class="board-panel household">
      <p class="question">${given ?? `${task.type.replaceAll('_', ' ')}: ${task.thing}, ${task.receptacle}`}</p>
      <p class="row">
        <span><span class="fine">Room</span> ${room}</span>
        <span><span class="fine">At</span> ${at ?? 'the middle of the room'}</span>
        <span><span class="fine">In hand</span> ${carries ?? 'nothing'}</span>
      </p>
      <ul class="row" aria-label="Furniture">
        ${receptacles.map(receptacle => html`<li key=${receptacle.name}>${furniture(receptacle, at === receptacle.name, admissible, context.act)}</li>`)}
      </ul>
      <p>${report}</p>
      ${actionButtons(others, context)}
    </div>`;
  },
};

function furniture(
  { name, open }: { readonly name: string; readonly open: boolean },
  isHere: boolean,
  admissible: readonly string[],
  act: ((action: string) => void) | undefined,
): VNode {
  const action = `${GO_TO}${name}`;
  const body = html`
    <svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">
      <path fill="none" stroke="currentColor" stroke-width="1.6" d="M4 8h16v11H4z" />
      ${open ? html`<path fill="none" stroke="currentColor" stroke-width="1.6" d="M4 8 7 4h10l3 4" />` : html`<path fill="none" stroke="currentColor" stroke-width="1.6" d="M4 12.5h16M11 15h2" />`}
    </svg>
    <span>${name}</span>
    ${!open && html`<span class="fine">closed</span>`}
    ${isHere && html`<b class="fine">you</b>`}
  `;
  return act && admissible.includes(action)
    ? html`<button type="button" class="small" onClick=${() => act(action)}><span class="visually-hidden">${GO_TO}</span>${body}</button>`
    : html`<div class="button small ${isHere ? 'here' : ''}">${body}</div>`;
}
