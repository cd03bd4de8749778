import { percent } from '../format.ts';

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
