import type { ValidationPoint } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';
import { percent } from '../format.ts';

interface SuccessBarProps {
  readonly last: Pick<ValidationPoint, 'success' | 'low' | 'high'>;
  /** Success before training. */
  readonly before?: number;
  readonly random: number | null;
  readonly optimum: number | null;
  /** Writes random and optimum below their marks; without it the numbers must be next to the bar. */
  readonly labelled?: boolean;
}

/** Labels of marks closer than this are on separate lines. */
const LABEL_WIDTH = 0.32;
/** Middle of the bar, and lines of its labels, in pixels. */
const MIDDLE = 10;
const LINES = [34, 50] as const;

const at = (share: number): string => `${100 * share}%`;

/** Success with its interval on a scale from 0 to 100 %, against random play and the optimum. */
export function SuccessBar({ last, before, random, optimum, labelled }: SuccessBarProps) {
  const { success, low, high } = last;
  const close = random !== null && optimum !== null && Math.abs(optimum - random) < LABEL_WIDTH;
  const range = (from: number, to: number, opacity: number) =>
    html`<rect fill="var(--accent)" opacity=${opacity} x=${at(from)} width=${at(to - from)} y=${MIDDLE - 6} height="12" />`;
  const mark = (name: string, share: number | null, line: number) =>
    share !== null &&
    html`<line stroke="var(--ink-soft)" stroke-dasharray="3 2" x1=${at(share)} x2=${at(share)} y1=${MIDDLE - 9} y2=${MIDDLE + 9} />
      ${labelled && html`<text class="mark-label" x=${at(share)} y=${line} text-anchor=${share < 1 / 3 ? 'start' : share > 2 / 3 ? 'end' : 'middle'}>${name} ${percent(share)}</text>`}`;
  return html`<svg class="success-bar" height=${labelled ? LINES[close ? 1 : 0] + 6 : 2 * MIDDLE} aria-hidden=${labelled ? undefined : 'true'}>
    <rect fill="var(--line)" width="100%" y=${MIDDLE - 6} height="12" />
    ${random !== null && success > random && range(random, success, 0.25)}
    ${low !== undefined && high !== undefined && range(low, high, 0.45)}
    ${mark('random', random, LINES[0])}${mark('optimum', optimum, LINES[close ? 1 : 0])}
    ${before !== undefined && html`<circle fill="var(--surface)" stroke="var(--ink-soft)" stroke-width="1.5" cx=${at(before)} cy=${MIDDLE} r="3" />`}
    <line stroke="var(--accent)" stroke-width="4" x1=${at(success)} x2=${at(success)} y1="0" y2=${2 * MIDDLE} />
  </svg>`;
}
