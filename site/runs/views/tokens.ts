import type { RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { SampleRecord, TurnRecord } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';
import { percent, short } from '../format.ts';

/** Values that can tint tokens. */
export const TINTS = [
  'log-probability',
  'entropy',
  'advantage',
  'value',
  'return',
  'weight version',
  'loss mask',
] as const;
export type Tint = (typeof TINTS)[number];

/** Tokens of one element; those far from the window are plain text. */
const BLOCK = 400;
/** The probability at or above which a token has the strongest tint, and the entropy and advantage that have it. */
const UNLIKELY = 0.03;
const MAX_ENTROPY = 2;
const MAX_ADVANTAGE = 2;
/** Responses up to this many tokens show each one's number below it. */
export const FEW_TOKENS = 24;

type Field = 'log_probs' | 'entropies' | 'advantages' | 'values' | 'returns' | 'versions' | 'mask';
const FIELDS: { readonly [tint in Tint]: Field } = {
  'log-probability': 'log_probs',
  entropy: 'entropies',
  advantage: 'advantages',
  value: 'values',
  return: 'returns',
  'weight version': 'versions',
  'loss mask': 'mask',
};

/** Tints for which a sample has numbers. */
export function knownTints(sample: SampleRecord | undefined): readonly Tint[] {
  return TINTS.filter(tint => sample?.[FIELDS[tint]] !== undefined);
}

/** Hue and strength of a token's background: the scale is fixed, so that episodes can be compared. */
interface Shade {
  readonly hue: 'amount' | 'up' | 'down';
  /** 0 to 1. */
  readonly share: number;
}

/** Legend of a tint: the meaning of no color and of the strongest color. */
export const SCALES: { readonly [tint in Tint]: readonly [pale: string, strong: string] } = {
  'log-probability': ['certain', '3 % or less'],
  entropy: ['sure', '2 nats or more'],
  advantage: ['−2: worse', '+2: better'],
  value: ['−1', '+1'],
  return: ['−1', '+1'],
  'weight version': ['oldest weights', 'newest'],
  'loss mask': ['not trained on', 'trained on'],
};

/** True for tints with two hues, one for each sign. */
export const isSigned = (tint: Tint): boolean => ['advantage', 'value', 'return'].includes(tint);

/**
 * Maps a number of a tint to its shade.
 * @param samples all of the episode: versions are shaded by their range
 */
export function tintScale(tint: Tint, samples: readonly SampleRecord[]): (value: number) => Shade {
  const clamp = (share: number) => (Number.isFinite(share) ? Math.min(1, Math.max(0, share)) : 0);
  const signed = (value: number, most: number): Shade => ({
    hue: value < 0 ? 'down' : 'up',
    share: clamp(Math.abs(value) / most),
  });
  switch (tint) {
    case 'log-probability':
      return value => ({ hue: 'amount', share: clamp(value / Math.log(UNLIKELY)) });
    case 'entropy':
      return value => ({ hue: 'amount', share: clamp(value / MAX_ENTROPY) });
    case 'advantage':
      return value => signed(value, MAX_ADVANTAGE);
    case 'value':
    case 'return':
      return value => signed(value, 1);
    case 'loss mask':
      return value => ({ hue: 'amount', share: value === 1 ? 0.5 : 0 });
    case 'weight version': {
      const known = samples.flatMap(({ versions, mask }) => versions.filter((_, i) => mask[i] === 1));
      const least = known.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
      const range = known.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY) - least;
      return value => ({
        hue: 'amount',
        share: range > 0 ? clamp(0.1 + (0.9 * (value - least)) / range) : 0.1,
      });
    }
  }
}

interface TokensProps {
  readonly sample: SampleRecord;
  readonly range: readonly [start: number, end: number];
  readonly texts: TokenTexts;
}

interface SampledTokensProps extends TokensProps {
  readonly tint?: Tint;
  readonly scale?: (value: number) => Shade;
  /** Index of the chosen token in the sample. */
  readonly chosen?: number;
  readonly onChoose: (at: number) => void;
}

/** Tokens of a prompt, without a choice. */
export function Tokens({ sample, range, texts }: TokensProps) {
  const parts = sample.token_ids.slice(...range).map(id => textOf(texts, id));
  return html`<pre class="tokens given" tabindex="0" aria-label="Prompt">${parts.map((text, i) => html`<span key=${i} class=${isSpecial(text) ? 'special' : undefined}>${withLineEnds(text)}</span>`)}</pre>`;
}

/**
 * Sampled tokens as one list to choose from: a click or the arrow keys choose a token, and {@link TokenPanel} shows its
 * numbers. A few tokens are separate with their number below; many run as text.
 */
export function SampledTokens({ range: [start, end], onChoose, chosen, ...props }: SampledTokensProps) {
  const few = end - start <= FEW_TOKENS;
  const starts = Array.from({ length: Math.ceil((end - start) / BLOCK) }, (_, i) => start + i * BLOCK);
  const onClick = (event: Event) => {
    const place = (event.target as Element).closest<HTMLElement>('[data-at]')?.dataset.at;
    if (place !== undefined) onChoose(Number(place));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const to =
      { Home: start, End: end - 1 }[event.key] ?? (by === undefined ? undefined : (chosen ?? start) + by);
    if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    onChoose(Math.max(start, Math.min(end - 1, to)));
  };
  return html`<div class="code-box tokens sampled ${few ? 'few' : ''}" role="listbox" tabindex="0" aria-label="Response, token by token"
    aria-activedescendant=${chosen === undefined ? undefined : `token-${chosen}`} onClick=${onClick} onKeyDown=${onKeyDown}>${starts.map(
      (from, i) =>
        html`<${TokenBlock} key=${from} ...${props} few=${few} chosen=${chosen} range=${[from, Math.min(end, from + BLOCK)]} first=${i < 2} />`,
    )}</div>`;
}

type BlockProps = Omit<SampledTokensProps, 'onChoose'> & { readonly few: boolean; readonly first: boolean };

/** Some tokens; plain text while they are far from the window. */
function TokenBlock({ first, ...props }: BlockProps) {
  const [place, near] = useNear<HTMLSpanElement>(first);
  return html`<span ref=${place} class="token-block" role="presentation">${near ? tokensOf(props) : plainText(props)}</span>`;
}

function plainText({ sample, range, texts }: TokensProps): string {
  return sample.token_ids
    .slice(...range)
    .map(id => textOf(texts, id))
    .join('');
}

function tokensOf({
  sample,
  range: [start, end],
  texts,
  tint,
  scale,
  chosen,
  few,
}: Omit<BlockProps, 'first'>) {
  const list = tint && sample[FIELDS[tint]];
  return Array.from({ length: end - start }, (_, i) => {
    const at = start + i;
    const text = textOf(texts, sample.token_ids[at]);
    const value = list?.[at];
    const shown = sample.mask[at] === 1 && value !== undefined;
    const shade = shown && scale ? scale(value) : undefined;
    return html`<span key=${at} id="token-${at}" data-at=${at} role="option" aria-selected=${at === chosen}
      class="token ${shade ? shade.hue : ''}" style=${shade ? { '--share': shade.share.toFixed(3), '--hue': `var(--tint-${shade.hue})` } : undefined}>${withLineEnds(text)}${
        few && shown && tint ? html`<small>${numberOf(tint, value)}</small>` : null
      }</span>`;
  });
}

/** A token's number in the form of its tint: a probability in percent. */
const numberOf = (tint: Tint, value: number): string =>
  tint === 'log-probability' ? probability(value) : short(value);

const isSpecial = (text: string): boolean => /^<[^<>]{1,40}>$/.test(text);

interface TokenPanelProps extends TokensProps {
  readonly at: number;
  readonly turn: number;
}

/** Everything known about the chosen token. */
export function TokenPanel({ sample, range: [start, end], texts, at, turn }: TokenPanelProps) {
  const trained = sample.mask[at] === 1;
  const rows = TINTS.flatMap(tint => {
    const value = sample[FIELDS[tint]]?.[at];
    return value === undefined || tint === 'loss mask' || !trained
      ? []
      : [[tint === 'log-probability' ? 'logprob' : tint, short(value)]];
  });
  const reference = trained ? sample.reference_log_probs?.[at] : undefined;
  if (reference !== undefined) {
    rows.push(['reference likely', probability(reference)]);
    rows.push(['KL to the reference', short(referenceKl(sample.log_probs[at], reference))]);
  }
  return html`<p class="row apart token-name"><code>${withLineEnds(textOf(texts, sample.token_ids[at]))}</code><span class="fine">token ${at - start + 1} of ${end - start}, turn ${turn + 1}</span></p>
    ${trained ? html`<p><strong class="figure">${probability(sample.log_probs[at])}</strong> <span class="fine">likely when it was sampled</span></p>` : html`<p class="fine">Not trained on: the loss mask leaves it out.</p>`}
    <${LikeliestTokens} sample=${sample} at=${at} texts=${texts} />
    <dl class="facts" style="--tile: 8.5rem">${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd class="number">${value}</dd></div>`)}
      <div><dt>token id</dt><dd class="number">${sample.token_ids[at]}</dd></div></dl>`;
}

/** The tokens of a turn's prompt that its sequence had not shown before. */
export function promptRange(turns: readonly TurnRecord[], turn: number): readonly [number, number] {
  const { sample, tokens } = turns[turn];
  const before = turns[turn - 1];
  return [before && before.sample === sample ? before.tokens[1] : 0, tokens[0]];
}

/** Distance from the window within which something counts as near, in windows. */
const MARGIN = '100% 0px';

const listeners = new WeakMap<Element, () => void>();
let observer: IntersectionObserver | undefined;

/** Calls back once, when the element comes near the window. */
function whenNear(element: Element, listener: () => void): () => void {
  observer ??= new IntersectionObserver(
    entries => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        listeners.get(target)?.();
        observer!.unobserve(target);
      }
    },
    { rootMargin: MARGIN },
  );
  listeners.set(element, listener);
  observer.observe(element);
  return () => {
    listeners.delete(element);
    observer!.unobserve(element);
  };
}

/**
 * True once an element has been in or near the window: thousands of tokens are rendered only when they are about to be seen.
 * @param first true for elements visible at first, which are rendered at once
 */
function useNear<E extends Element>(first: boolean): readonly [RefObject<E | null>, boolean] {
  const place: RefObject<E | null> = useRef(null);
  const [near, setNear] = useState(first);
  useEffect(() => (first ? undefined : whenNear(place.current!, () => setNear(true))), []);
  return [place, near];
}

/** A token that could have been sampled. */
interface Likely {
  readonly id: number;
  readonly share: number;
}

/** The likeliest tokens at a position, in descending order; undefined where the run kept none. */
function likeliestAt({ top_logprobs: top }: SampleRecord, at: number): readonly Likely[] | undefined {
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
function referenceKl(logProb: number, reference: number): number {
  const log = reference - logProb;
  return Math.exp(log) - 1 - log;
}

/** Rivals of a sampled token as bars, the sampled one marked, and all others in one row. */
function LikeliestTokens({ sample, at, texts }: Omit<TokenPanelProps, 'range' | 'turn'>) {
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

/** Texts of tokens by id. */
export interface TokenTexts {
  readonly [id: string]: string;
}

/** The text of a token; its id where the text is unknown. */
export const textOf = (texts: TokenTexts, id: number): string => texts[id] ?? `<${id}>`;

/** Text with visible line ends. */
export const withLineEnds = (text: string): string => text.replaceAll('\n', '↵\n');

/** `3.9 %` for a log-probability. */
export function probability(logProb: number): string {
  const share = Math.exp(logProb);
  return share > 0.9949 && share < 1 ? '> 99 %' : share < 0.001 ? '< 0.1 %' : percent(share);
}
