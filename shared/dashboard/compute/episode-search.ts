import type { TrajectoryRecord } from '../run-files.ts';

/** Characters around a hit. */
const SNIPPET = 60;

/** Position of a text in an episode. */
export interface TextHit {
  /** From 0. */
  readonly turn: number;
  readonly where: 'prompt' | 'response';
  /** The text around the place. */
  readonly snippet: string;
}

/** Text of a token; undefined where it is not known. */
type TokenText = (id: number) => string | undefined;

/** The first place of a text in an episode. @param wanted in lower case */
export function findIn(record: TrajectoryRecord, wanted: string, texts: TokenText): TextHit | undefined {
  for (const [turn, { state, llm_raw_response: response }] of record.turns.entries()) {
    const prompt = promptText(record, turn, texts) ?? state;
    for (const [where, text] of [
      ['prompt', prompt],
      ['response', response],
    ] as const) {
      const at = text.toLowerCase().indexOf(wanted);
      if (at === -1) continue;
      const snippet = text.slice(Math.max(0, at - SNIPPET), at + wanted.length + SNIPPET);
      return { turn, where, snippet };
    }
  }
  return undefined;
}

/** Text that a turn's prompt added to its sequence; undefined where the tokens are not known. */
function promptText(
  { turns, samples }: TrajectoryRecord,
  turn: number,
  texts: TokenText,
): string | undefined {
  const { sample, tokens } = turns[turn];
  const ids = samples[sample]?.token_ids;
  if (!ids || tokens[1] === 0 || texts(ids[0]) === undefined) return undefined;
  const before = turns[turn - 1];
  const start = before?.sample === sample ? before.tokens[1] : 0;
  return ids
    .slice(start, tokens[0])
    .map(id => texts(id) ?? `<${id}>`)
    .join('');
}
