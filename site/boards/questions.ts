import { html } from '../components/html.ts';
import { type BoardKind, cards, has } from './board-kind.ts';

interface Given {
  readonly text: string;
  readonly right: boolean;
}

interface ChoiceState {
  readonly question: string;
  readonly choices: readonly string[];
  readonly given: Given | null;
}

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';

/** A question with one try; its choices, if any, are buttons. */
export const choiceQuestion: BoardKind<ChoiceState> = {
  name: 'choice-question',
  fits: state => has(state, 'question', 'choices', 'given'),
  draw: ({ question, choices, given }, { act }) => html`<div class="board-panel paper">
    <p class="question">${question}</p>
    <div class="stack tight">
      ${choices.map((choice, index) => {
        const letter = LETTERS[index];
        const mark = given?.text.trim().toUpperCase() === letter ? (given.right ? 'good' : 'bad') : '';
        const body = html`<b>${letter}</b> <span>${choice}</span>`;
        return act
          ? html`<button key=${letter} type="button" class="button choice ${mark}" onClick=${() => act(letter)}>${body}</button>`
          : html`<div key=${letter} class="button choice ${mark}">${body}</div>`;
      })}
    </div>
    ${given && html`<p class="outcome ${given.right ? 'good' : 'bad'}">${given.text} is ${given.right ? 'right' : 'wrong'}.</p>`}
  </div>`,
};

interface TriesState {
  readonly question: string;
  readonly tries: readonly string[];
  readonly solved: boolean;
}

/** A question that may be answered again. */
export const triedQuestion: BoardKind<TriesState> = {
  name: 'tried-question',
  fits: state => has(state, 'question', 'tries', 'solved'),
  draw: ({ question, tries, solved }) => html`<div class="board-panel paper">
    <p class="question">${question}</p>
    <ol>
      ${tries.map((text, index) => {
        const isRight = solved && index === tries.length - 1;
        return html`<li key=${index} class="outcome ${isRight ? 'good' : 'bad'}">${text} is ${isRight ? 'right' : 'wrong'}.</li>`;
      })}
    </ol>
  </div>`,
};

interface SearchState {
  readonly question: string;
  readonly queries: readonly string[];
  readonly report: string;
  readonly finished: { readonly answer: string; readonly reward: number } | null;
}

/** A question with the searches made so far, and the result of the last one. */
export const searchedQuestion: BoardKind<SearchState> = {
  name: 'searched-question',
  fits: state => has(state, 'question', 'queries', 'report'),
  draw: ({ question, queries, report, finished }) => html`<div class="board-panel paper">
    <p class="question">${question}</p>
    ${queries.length > 0 && html`<ol>${queries.map(query => html`<li>${query}</li>`)}</ol>`}
    ${
      finished
        ? html`<p class="outcome ${finished.reward > 0 ? 'good' : 'bad'}">Answer: ${finished.answer}</p>`
        : html`<p>${report}</p>`
    }
  </div>`,
};

interface CountdownState {
  readonly nums: readonly number[];
  readonly target: number;
  readonly answer: { readonly text: string; readonly value: number | null; readonly reward: number } | null;
}

/** Numbers as cards, and the target. */
export const countdown: BoardKind<CountdownState> = {
  name: 'countdown',
  fits: state => has(state, 'nums', 'target', 'answer'),
  draw: ({ nums, target, answer }) => html`<div class="board-panel paper countdown">
    <div class="row"><span class="fine">Target</span><strong class="figure">${target}</strong></div>
    ${cards(nums)}
    ${answer && html`<p class="outcome ${answer.value === target && answer.reward >= 1 ? 'good' : 'bad'}">${answer.text}${answer.value !== null && ` = ${answer.value}`}</p>`}
  </div>`,
};
