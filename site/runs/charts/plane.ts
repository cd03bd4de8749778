import type { ValidationPoint } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';
import { withUnit } from '../../components/text.ts';
import { percent, short } from '../format.ts';

const SIZE = 360;
const EDGE = 44;

/** Names of `collapse/regime`, in the order of its numbers. */
export const REGIMES = ['diverse', 'template collapse', 'compressed', 'low-entropy collapse'] as const;

interface Place {
  readonly step: number;
  /**
   * Conditional entropy of the reasoning in nats per token, and its mutual information with the prompt as a share of the
   * maximum.
   */
  readonly entropy: number;
  readonly share: number;
}

/** The path of a run in the plane of H(Z|X) against the share of mutual information, with the four regimes. */
export function Plane({ places, regime }: { readonly places: readonly Place[]; readonly regime?: number }) {
  // Thresholds as the trainer sets them: half of the median of the first three measurements.
  const first = places.slice(0, 3);
  const middle = (list: readonly number[]) => list.toSorted((a, b) => a - b)[list.length >> 1];
  const entropyCut = middle(first.map(({ entropy }) => entropy)) / 2;
  const shareCut = Math.max(0.05, middle(first.map(({ share }) => share)) / 2);
  const most = Math.max(2 * entropyCut, ...places.map(({ entropy }) => entropy)) * 1.1 || 1;
  const x = (entropy: number) => EDGE + (entropy / most) * (SIZE - EDGE - 8);
  const y = (share: number) => SIZE - EDGE - Math.min(1, Math.max(0, share)) * (SIZE - EDGE - 8);
  const last = places.at(-1)!;
  const words = `H(Z|X) against MI share: from ${withUnit(short(places[0].entropy), 'nats')} and ${percent(places[0].share)} at step ${places[0].step} to ${withUnit(short(last.entropy), 'nats')} and ${percent(last.share)} at step ${last.step}${regime === undefined ? '' : `, ${REGIMES[regime]}`}`;
  const labels = [
    [x(most) - 4, y(1) + 14, 'end', REGIMES[0]],
    [x(most) - 4, y(0) - 6, 'end', REGIMES[1]],
    [x(0) + 4, y(1) + 14, 'start', REGIMES[2]],
    [x(0) + 4, y(0) - 6, 'start', REGIMES[3]],
  ];
  return html`<figure class="stack chart plane">
    <figcaption>Does the reasoning depend on the prompt?</figcaption>
    <svg viewBox="0 0 ${SIZE} ${SIZE}" role="img" aria-label=${words}>
      <rect fill="var(--good-wash)" x=${x(entropyCut)} y=${y(1)} width=${x(most) - x(entropyCut)} height=${y(shareCut) - y(1)} />
      <line stroke="var(--edge)" x1=${x(0)} x2=${x(most)} y1=${y(0)} y2=${y(0)} />
      <line stroke="var(--edge)" x1=${x(0)} x2=${x(0)} y1=${y(0)} y2=${y(1)} />
      <line stroke="var(--edge)" stroke-width="1.5" stroke-dasharray="5 4" x1=${x(entropyCut)} x2=${x(entropyCut)} y1=${y(0)} y2=${y(1)} />
      <line stroke="var(--edge)" stroke-width="1.5" stroke-dasharray="5 4" x1=${x(0)} x2=${x(most)} y1=${y(shareCut)} y2=${y(shareCut)} />
      ${labels.map(([at, height, anchor, name]) => html`<text key=${name} x=${at} y=${height} text-anchor=${anchor}>${name}</text>`)}
      <polyline fill="none" stroke="var(--accent)" stroke-opacity="0.6" stroke-width="1.5" points=${places.map(({ entropy, share }) => `${x(entropy)},${y(share)}`).join(' ')} />
      ${places.map(({ step, entropy, share }, i) => html`<circle key=${step} fill="var(--accent)" stroke="var(--surface)" stroke-width=${i === places.length - 1 ? 2 : 0} cx=${x(entropy)} cy=${y(share)} r=${i === places.length - 1 ? 6 : 3}><title>step ${step}: ${withUnit(short(entropy), 'nats')}, ${percent(share)}</title></circle>`)}
      <text x=${x(most / 2)} y=${SIZE - 10} text-anchor="middle">H(Z|X), nats per token</text>
      <text x="14" y=${y(0.5)} text-anchor="middle" transform="rotate(-90 14 ${y(0.5)})">MI, share of the most it can be</text>
    </svg>
    <p class="fine">${words}.</p>
  </figure>`;
}

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
