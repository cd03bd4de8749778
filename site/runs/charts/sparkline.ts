import type { ValidationPoint } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';

const WIDTH = 96;
const HEIGHT = 24;
const EDGE = 2;

/** Validation success over the steps of a run, from 0 to 1, without axes; the numbers are next to it. */
export function Sparkline({ points }: { readonly points: readonly ValidationPoint[] }) {
  if (points.length < 2) return html`<svg width=${WIDTH} height=${HEIGHT} aria-hidden="true"></svg>`;
  const last = points.at(-1)!.step || 1;
  const at = ({ step, success }: ValidationPoint) =>
    `${(EDGE + (step / last) * (WIDTH - 2 * EDGE)).toFixed(1)},${(HEIGHT - EDGE - success * (HEIGHT - 2 * EDGE)).toFixed(1)}`;
  return html`<svg width=${WIDTH} height=${HEIGHT} aria-hidden="true">
    <polyline fill="none" stroke="var(--accent)" stroke-width="1.5" points=${points.map(at).join(' ')} />
  </svg>`;
}
