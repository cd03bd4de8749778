import { isObject } from '../../shared/json.ts';
import { html } from '../components/html.ts';
import { shortened } from '../components/text.ts';
import { type BoardKind, has, isSide } from './board-kind.ts';

interface ProofState {
  readonly statement: string;
  readonly tactics: readonly string[];
  /** Last message of the prover; null at the start. */
  readonly feedback: { readonly status: string; readonly messages: readonly string[] } | null;
  /** Open goals, where the prover reported them. */
  readonly goals?: readonly string[];
}

/** A theorem with the accepted tactics and the remaining goals, side by side where there is room. */
export const proof: BoardKind<ProofState> = {
  name: 'proof',
  fits: state => has(state, 'statement', 'tactics', 'feedback'),
  draw: ({ statement, tactics, feedback, goals = [] }) => html`<div class="board-panel paper proof">
    <div class="tiles" style="--tile: 20rem">
    <pre>${[statement, ...tactics.map(tactic => `  ${tactic}`)].join('\n')}</pre>
    <div class="stack tight">${feedback && html`<p class="outcome ${feedback.status === 'rejected' ? 'bad' : 'good'}">${feedback.status}</p>`}
    ${feedback && feedback.messages.length > 0 && html`<pre class="goal" tabindex="0">${feedback.messages.join('\n')}</pre>`}
    ${feedback?.status === 'rejected' && goals.length > 0 && html`<pre class="goal" tabindex="0">${goals.join('\n')}</pre>`}
    </div></div>
  </div>`,
};

interface ProgramState {
  readonly statement: string;
  readonly starter: string;
  readonly outcome: { readonly passed: number; readonly total: number; readonly failure: string } | null;
}

/** A programming task with the number of passed tests. */
export const program: BoardKind<ProgramState> = {
  name: 'program',
  fits: ({ statement, starter, outcome }) =>
    typeof statement === 'string' &&
    typeof starter === 'string' &&
    (outcome === null || (isObject(outcome) && isSide(outcome.total))),
  draw: ({ statement, starter, outcome }) => html`<div class="board-panel paper">
    <p class="question">${statement}</p>
    ${starter !== '' && html`<pre>${starter}</pre>`}
    ${
      outcome &&
      html`<div class="row tight tests" role="img" aria-label=${`${outcome.passed} of ${outcome.total} tests passed`}>
      ${Array.from({ length: outcome.total }, (_, index) => html`<i class=${index < outcome.passed ? 'good' : 'bad'} />`)}
    </div>`
    }
    ${outcome && html`<p class="outcome ${outcome.passed === outcome.total ? 'good' : 'bad'}">${outcome.passed} of ${outcome.total} tests passed. ${outcome.failure}</p>`}
  </div>`,
};

/** Board of every other environment: the observation as text, or the state as JSON. */
export const plainText: BoardKind<unknown> = {
  name: 'plain-text',
  fits: () => true,
  draw: (state, { text }) =>
    html`<pre class="board-text">${shortened(text ?? JSON.stringify(state, null, 2))}</pre>`,
};
