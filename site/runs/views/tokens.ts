import type { SampleRecord, TurnRecord } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';
import { short } from '../format.ts';
import { useNear } from './near.ts';

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
const STEPS = 8;

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

/** Tints that a sample has numbers for. */
export function knownTints(sample: SampleRecord | undefined): readonly Tint[] {
  return TINTS.filter(tint => sample?.[FIELDS[tint]] !== undefined);
}

/** Maps numbers of a tint to steps of color: −8 to 8, by the sign; 0 is no color. */
export function tintScale(tint: Tint, samples: readonly SampleRecord[]): (value: number) => number {
  const field = FIELDS[tint];
  const values = samples.flatMap(sample => (sample[field] ?? []).filter((_, i) => sample.mask[i] === 1));
  const finite = values.filter(value => Number.isFinite(value));
  const most = finite.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
  const least = finite.reduce((least, value) => Math.min(least, value), Number.POSITIVE_INFINITY);
  const greatest = finite.reduce((greatest, value) => Math.max(greatest, value), Number.NEGATIVE_INFINITY);
  switch (tint) {
    case 'advantage':
    case 'value':
    case 'return':
      return value => Math.round((value / most) * STEPS);
    case 'weight version':
      return value =>
        greatest === least ? 1 : 1 + Math.round(((value - least) / (greatest - least)) * (STEPS - 1));
    case 'loss mask':
      return value => (value === 1 ? 4 : 0);
    default:
      // A probable token is pale, an unlikely one strong.
      return value => Math.round((Math.abs(value) / most) * STEPS);
  }
}

interface TokensProps {
  readonly sample: SampleRecord;
  readonly range: readonly [start: number, end: number];
  readonly texts: { readonly [id: string]: string };
  readonly tint?: Tint;
  readonly scale?: (value: number) => number;
}

/** Tokens of a sample, tinted; each says its numbers under the pointer. */
export function Tokens({ range: [start, end], ...props }: TokensProps) {
  const starts = Array.from({ length: Math.ceil((end - start) / BLOCK) }, (_, i) => start + i * BLOCK);
  return html`<div class="tokens">${starts.map(
    (from, i) =>
      html`<${TokenBlock} key=${from} ...${props} range=${[from, Math.min(end, from + BLOCK)]} first=${i < 2} />`,
  )}</div>`;
}

/** Some tokens; plain text while they are far from the window. */
function TokenBlock({ first, range, ...props }: TokensProps & { readonly first: boolean }) {
  const [place, near] = useNear<HTMLSpanElement>(first);
  return html`<span ref=${place} class="token-block">${near ? tokensOf({ range, ...props }) : plainText({ range, ...props })}</span>`;
}

function plainText({ sample, range, texts }: TokensProps): string {
  return sample.token_ids
    .slice(...range)
    .map(id => texts[id] ?? `<${id}>`)
    .join('');
}

function tokensOf({ sample, range: [start, end], texts, tint, scale }: TokensProps) {
  const list = tint && sample[FIELDS[tint]];
  return Array.from({ length: end - start }, (_, i) => {
    const at = start + i;
    const id = sample.token_ids[at];
    const value = list?.[at];
    const trained = sample.mask[at] === 1;
    const step = scale && value !== undefined && trained ? scale(value) : 0;
    return html`<span key=${at} class=${step === 0 ? undefined : `tint ${step < 0 ? 'minus' : 'plus'}-${Math.min(STEPS, Math.abs(step))}`}
      title=${trained ? numbersOf(sample, at, id) : undefined}>${texts[id] ?? `<${id}>`}</span>`;
  });
}

function numbersOf(sample: SampleRecord, at: number, id: number): string {
  const parts = TINTS.flatMap(tint => {
    const value = sample[FIELDS[tint]]?.[at];
    return value === undefined || tint === 'loss mask' ? [] : [`${tint} ${short(value)}`];
  });
  return [`token ${id}`, ...parts].join('\n');
}

/** The tokens of a turn's prompt that its sequence had not shown before. */
export function promptRange(turns: readonly TurnRecord[], turn: number): readonly [number, number] {
  const { sample, tokens } = turns[turn];
  const before = turns[turn - 1];
  return [before && before.sample === sample ? before.tokens[1] : 0, tokens[0]];
}
