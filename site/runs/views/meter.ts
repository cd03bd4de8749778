import { html } from '../../components/html.ts';

interface MeterProps {
  /** −1 to 1 of the longest bar. */
  readonly share: number;
  /** The bar begins in the middle, and extends to the left below 0. */
  readonly middle?: boolean;
}

/** A number as a bar. */
export function Meter({ share, middle }: MeterProps) {
  const length = Math.min(1, Math.abs(share)) / (middle ? 2 : 1);
  const from = middle ? 0.5 - (share < 0 ? length : 0) : 0;
  return html`<span class="meter ${share < 0 ? 'down' : 'up'}" style=${{ '--from': from.toFixed(3), '--share': length.toFixed(3) }}></span>`;
}
