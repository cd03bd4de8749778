import type { SampleRecord } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';
import { percent } from '../format.ts';
import { type TokenTexts, textOf, withLineEnds } from './token-text.ts';

/** A token that could have been sampled. */
interface Likely {
  readonly id: number;
  readonly share: number;
}

/** The likeliest tokens at a position, in descending order; undefined where the run kept none. */
export function likeliestAt({ top_logprobs: top }: SampleRecord, at: number): readonly Likely[] | undefined {
  const pairs = top?.[at];
  if (!pairs) return undefined;
  return Array.from({ length: pairs.length / 2 }, (_, i) => ({
    id: pairs[2 * i],
    share: Math.exp(pairs[2 * i + 1]),
  }));
}

/**
 * KL to the reference at a sampled token: the estimator of TRL and verl that is never negative, r − 1 − log r with r = π_ref / π.
 * Source: Schulman, Approximating KL divergence (k3).
 */
export function referenceKl(logProb: number, reference: number): number {
  const log = reference - logProb;
  return Math.exp(log) - 1 - log;
}

interface LikeliestProps {
  readonly sample: SampleRecord;
  readonly at: number;
  readonly texts: TokenTexts;
}

/** Rivals of a sampled token as bars, the sampled one marked, and all others in one row. */
export function LikeliestTokens({ sample, at, texts }: LikeliestProps) {
  const likeliest = likeliestAt(sample, at);
  if (!likeliest) return null;
  const sampled = sample.token_ids[at];
  const shown = likeliest.some(({ id }) => id === sampled)
    ? likeliest
    : [...likeliest, { id: sampled, share: Math.exp(sample.log_probs[at]) }];
  const rest = Math.max(0, 1 - shown.reduce((sum, { share }) => sum + share, 0));
  const bar = (share: number) =>
    html`<div class="meter up" style=${{ '--share': Math.min(1, share).toFixed(3) }}></div>`;
  return html`<ol class="likeliest" aria-label="Likeliest tokens">
    ${shown.map(
      ({ id, share }) => html`<li key=${id} aria-current=${id === sampled ? 'true' : undefined}>
        <div class="row apart"><code>${withLineEnds(textOf(texts, id))}${id === sampled ? html` <span class="fine">sampled</span>` : null}</code><span class="number">${percent(share)}</span></div>${bar(share)}</li>`,
    )}
    <li><div class="row apart"><span class="fine">all others</span><span class="number">${percent(rest)}</span></div>${bar(rest)}</li>
  </ol>`;
}
