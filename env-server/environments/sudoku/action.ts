/** A placement; row and column counted from 1. */
export interface Placement {
  readonly row: number;
  readonly col: number;
  readonly number: number;
}

const NUMBER = String.raw`\d{1,3}`;
const PAIR = String.raw`(?:\(\s*)?(?<row>${NUMBER})\s*,\s*(?<col>${NUMBER})\s*\)?`;

/** `place n at row r col c`, `n at (r, c)`, `r,c,n` and their mixtures, in any case. */
const SPELLINGS = [
  new RegExp(
    `^(?:place\\s+)?(?<number>${NUMBER})\\s+at\\s+row\\s+(?<row>${NUMBER})\\s*(?:,\\s*)?col(?:umn)?\\s+(?<col>${NUMBER})$`,
    'i',
  ),
  new RegExp(`^(?:place\\s+)?(?<number>${NUMBER})\\s+at\\s+${PAIR}$`, 'i'),
  new RegExp(
    `^\\(?\\s*(?<row>${NUMBER})\\s*,\\s*(?<col>${NUMBER})\\s*,\\s*(?<number>${NUMBER})\\s*\\)?$`,
    'i',
  ),
];

/** The placement that a text spells, or null. Whether it lies on the board is not looked at. */
export function parsePlacement(text: string): Placement | null {
  const trimmed = text.trim();
  for (const spelling of SPELLINGS) {
    const groups = spelling.exec(trimmed)?.groups;
    if (groups) return { row: Number(groups.row), col: Number(groups.col), number: Number(groups.number) };
  }
  return null;
}

/** The spelling that `describe` teaches. */
export function spellPlacement({ row, col, number }: Placement): string {
  return `place ${number} at row ${row} col ${col}`;
}
