import type { ValidationPoint } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';
import { percent } from '../format.ts';

interface SuccessBarProps {
  readonly last: Pick<ValidationPoint, 'success' | 'low' | 'high'>;
  /** Success before training. */
  readonly before?: number;
  readonly random: number | null;
  readonly optimum: number | null;
  /** Writes random and optimum below their marks; without it the bar needs its numbers next to it. */
  readonly labelled?: boolean;
}

/** Labels of marks closer than this stand one below the other. */
const LABEL_WIDTH = 0.32;

/** Success with its interval on a scale from 0 to 100 %, against random play and the optimum. */
export function SuccessBar({ last, before, random, optimum, labelled }: SuccessBarProps) {
  const { success, low, high } = last;
  const part = (name: string, from: number, to = from) =>
    html`<i class=${name} style=${{ '--from': from, '--to': to }}></i>`;
  const close = random !== null && optimum !== null && Math.abs(optimum - random) < LABEL_WIDTH;
  const mark = (name: string, share: number | null, below = false) =>
    share !== null &&
    html`${part('mark', share)}${labelled && html`<span class="label mark-label ${below ? 'below' : ''}" style=${{ '--from': share }}>${name} ${percent(share)}</span>`}`;
  return html`<div class="success-bar ${labelled ? 'labelled' : ''} ${close ? 'close' : ''}" aria-hidden=${labelled ? undefined : 'true'}>
    <div class="track">
      ${random !== null && success > random && part('gained', random, success)}
      ${low !== undefined && high !== undefined && part('interval', low, high)}
      ${mark('random', random)}${mark('optimum', optimum, close)}
      ${before !== undefined && part('before', before)}
      ${part('value', success)}
    </div>
  </div>`;
}
