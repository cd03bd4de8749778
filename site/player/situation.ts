import type { ComponentChildren, Ref } from 'preact';
import type { Json } from '../../shared/json.ts';
import { Board, boardKindOf } from '../boards/board.ts';
import { html } from '../components/html.ts';
import { actionRemark, briefNumber, episodeStatus, formatNumber, formatValue, remark } from './format.ts';
import type { Observation, PlayedStep, Schemas } from './wire.ts';

/** State shown by the figures and the board. */
export interface Situation {
  readonly step: number;
  readonly steps: number;
  readonly observation: Observation;
  /** The state as plain data, where known. */
  readonly structured: unknown;
  readonly action?: unknown;
  readonly reward?: number;
  readonly totalReward: number;
  /** Absent where it is shown elsewhere. */
  readonly seed?: number | null;
  readonly terminated?: boolean;
  readonly truncated?: boolean;
  readonly info: Schemas['Info'];
}

interface SituationProps {
  readonly situation: Situation;
}

/** True for a board that shows everything in the text. */
const TEXTUAL = 'plain-text';

/** Characters of an action in a line. */
const MAX_CELL_LENGTH = 1000;

/** The numbers of the last step. */
export function Figures({ situation }: SituationProps) {
  const { step, steps, action, reward, totalReward, seed, info } = situation;
  const status = episodeStatus(situation);
  const said = action === undefined ? '–' : formatValue(action, 0, MAX_CELL_LENGTH).replaceAll(/\s+/g, ' ');
  return html`<dl class="figures">
    <${Figure} name="Step"><span>${step}<small> of ${steps}</small></span><//>
    <${Figure} name="Action" note=${actionRemark(info)}><span title=${said}>${said}</span><//>
    <${Figure} name="Return">${briefNumber(totalReward)}<//>
    <${Figure} name="Episode"><span class="chip ${status.tone}">${status.text}</span><//>
    <${Figure} name="Reward">${reward === undefined ? '–' : briefNumber(reward)}<//>
    ${seed !== undefined && html`<${Figure} name="Seed">${seed === null ? 'none' : String(seed)}<//>`}
  </dl>`;
}

interface FigureProps {
  readonly name: string;
  readonly note?: string;
  readonly children?: ComponentChildren;
}

function Figure({ name, note = '', children }: FigureProps) {
  return html`<div data-figure=${name}>
    <dt class="cut">${name}${note !== '' && html` <span class="chip warn">${note}</span>`}</dt>
    <dd class="cut">${children}</dd>
  </div>`;
}

interface BoardPlaceProps extends SituationProps {
  /** Takes an action where the board is clickable. */
  readonly act?: (action: Json) => void;
  /** Element that receives keys; it contains the board. */
  readonly place?: Ref<HTMLElement>;
  readonly [attribute: string]: unknown;
}

/** A state as its player sees it. */
export function BoardPlace({ situation, act, place, ...attributes }: BoardPlaceProps) {
  const { structured, observation } = situation;
  return html`<div ref=${place} class="state" tabindex="-1" role="group" aria-label="Board" ...${attributes}>
    <${Board} state=${structured} text=${formatValue(observation, 2)} act=${act} />
  </div>`;
}

/** The observation as text, collapsed; hidden where the board shows the same. */
export function ObservationText({ situation }: SituationProps) {
  return html`<details class="as-text" hidden=${boardKindOf(situation.structured).name === TEXTUAL}>
    <summary>Observation as text</summary>
    <pre class="observation" tabindex="0" role="region" aria-label="Observation">${formatValue(situation.observation, 2)}</pre>
  </details>`;
}

/** The environment's `info` of the last step. */
export function InfoBox({ situation }: SituationProps) {
  const entries = Object.entries(situation.info);
  return html`<details class="info-box" hidden=${entries.length === 0}>
    <summary>Info</summary>
    <dl class="facts info">${entries.map(
      ([name, value]) =>
        html`<div key=${name}><dt>${name}</dt><dd class="code">${formatValue(value)}</dd></div>`,
    )}</dl>
  </details>`;
}

/** Most shown rows, because a browser need not hold thousands. */
const MAX_ROWS = 200;

/** The taken steps, the last one first. */
export function Transcript({ moves }: { readonly moves: readonly PlayedStep[] }) {
  const first = Math.max(0, moves.length - MAX_ROWS);
  const rows = moves.slice(first).map((move, index) => ({ move, step: first + index + 1 }));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Steps taken">
    <table>
      <thead><tr>
        <th scope="col" class="number">Step</th><th scope="col">Action</th><th scope="col" class="number">Reward</th>
        <th scope="col"><span class="visually-hidden">Remarks</span></th>
      </tr></thead>
      <tbody>${rows.reverse().map(
        ({ move, step }) =>
          html`<tr key=${step}><td class="number">${step}</td><td class="cut" style="width: 100%; max-width: 0">${formatValue(move.action, 0, MAX_CELL_LENGTH)}</td>
              <td class="number">${formatNumber(move.reward)}</td><td style="white-space: nowrap">${remark(move)}</td></tr>`,
      )}</tbody>
    </table>
    <p class="fine">${moves.length === 0 ? 'None yet.' : first > 0 && `${first} earlier ones are not shown.`}</p>
  </div>`;
}
