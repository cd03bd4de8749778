import type { TObject, TString } from 'typebox';
import type { Json } from '../../../../shared/json.ts';
import { closed, Type } from '../../../../shared/schema/type.ts';
import {
  type Description,
  type EnvironmentSpec,
  InvalidConfig,
  InvalidOptions,
  type ObservationFormat,
  type Picture,
} from '../environment.ts';
import { choiceSetting } from '../settings.ts';
import { charactersOf, LINES, type Space, text } from '../spaces.ts';
import { pictureUrl } from './png.ts';

/**
 * Kinds of a board's cells in the order of their codes: the symbol unless the configuration has another, its meaning, and
 * its figure in pictures.
 */
export interface CellKinds {
  readonly [name: string]: readonly [symbol: string, meaning: string, figure: string];
}

/** The symbols of a board, as a configuration has them. */
export function symbolsSchema<Kinds extends CellKinds>(kinds: Kinds) {
  const symbols = Object.entries(kinds).map(
    ([name, [symbol]]) => [name, Type.String({ default: symbol, minLength: 1, maxLength: 16 })] as const,
  );
  const options = { default: {}, description: 'How each kind of cell is written.' };
  return closed(Object.fromEntries(symbols), options) as TObject<{ [Name in keyof Kinds]: TString }>;
}

/** The numbers of the kinds in the structured form of a board. */
export function codesOf<Kinds extends CellKinds>(kinds: Kinds): { readonly [Name in keyof Kinds]: number } {
  return Object.fromEntries(Object.keys(kinds).map((name, code) => [name, code])) as {
    [Name in keyof Kinds]: number;
  };
}

/** The cells with a letter, of a board with one letter a cell. */
export function cellsWith(letter: string, cells: string): number[] {
  const found: number[] = [];
  for (let cell = cells.indexOf(letter); cell >= 0; cell = cells.indexOf(letter, cell + 1)) found.push(cell);
  return found;
}

/** `(1, 1), (1, 3)`: cells of a row-major grid as zero-indexed (row, col). */
export function coordinates(cells: readonly number[], cols: number): string {
  return cells.map(cell => coordinate(cell, cols)).join(', ');
}

/** `(1, 3)`. */
export function coordinate(cell: number, cols: number): string {
  return `(${Math.floor(cell / cols)}, ${cell % cols})`;
}

/** [row, col]. */
export function rowCol(cell: number, cols: number): [number, number] {
  return [Math.floor(cell / cols), cell % cols];
}

export interface Layout {
  readonly rows: number;
  readonly cols: number;
  /** Row-major; one symbol a cell. */
  readonly cells: readonly string[];
}

/**
 * Parses a level: rows of symbols, one character a cell, or one string with line breaks.
 * @throws InvalidOptions under `/layout` when the rows differ in length or there are none
 */
export function readLayout(layout: string | readonly string[]): Layout {
  const lines = typeof layout === 'string' ? layout.replace(/\n$/, '').split('\n') : layout;
  const rows = lines.map(line => Array.from(line));
  const cols = rows[0]?.length ?? 0;
  if (cols === 0) throw new InvalidOptions('/layout', 'the layout has no cells');
  for (let r = 1; r < rows.length; r++) {
    if (rows[r].length !== cols) {
      throw new InvalidOptions(
        `/layout/${r}`,
        `row ${r} has ${rows[r].length} cells, row 0 has ${cols}: all rows must be equally long`,
      );
    }
  }
  return { rows: rows.length, cols, cells: rows.flat() };
}

/**
 * A cell given as [row, col].
 * @throws InvalidOptions when it is outside the board
 */
export function cellAt(pointer: string, [row, col]: readonly number[], rows: number, cols: number): number {
  if (row >= rows || col >= cols) {
    throw new InvalidOptions(pointer, `(${row}, ${col}) is outside the ${rows} × ${cols} board`);
  }
  return row * cols + col;
}

/**
 * Checks that the symbols of a custom vocabulary differ and fit in a line.
 * @throws InvalidConfig under `/symbols`
 */
export function checkSymbols(symbols: { readonly [name: string]: string }): void {
  const seen = new Map<string, string>();
  for (const [name, symbol] of Object.entries(symbols)) {
    const pointer = `/symbols/${name}`;
    if (/\s/.test(symbol)) throw new InvalidConfig(pointer, `the symbol of ${name} contains white space`);
    const other = seen.get(symbol);
    if (other) throw new InvalidConfig(pointer, `${name} and ${other} have the same symbol ${symbol}`);
    seen.set(symbol, name);
  }
}

/** Text of a board with a few changing cells: where each cell's symbol starts and ends. */
export interface Backdrop {
  readonly text: string;
  readonly starts: readonly number[];
  readonly ends: readonly number[];
}

/** Arranges symbols, one a cell, row-major, as lines. */
export function backdrop(symbols: readonly string[], cols: number): Backdrop {
  const starts: number[] = [];
  const ends: number[] = [];
  let text = '';
  for (const [cell, symbol] of symbols.entries()) {
    if (cell > 0 && cell % cols === 0) text += '\n';
    starts.push(text.length);
    text += symbol;
    ends.push(text.length);
  }
  return { text, starts, ends };
}

/** Text forms that a grid's configuration can choose. */
const TEXT_FORMS = ['grid', 'coord', 'grid_coord', 'image'] as const;

export const textFormSchema = choiceSetting(
  TEXT_FORMS,
  'grid',
  'The form of the text observation; image is a PNG as `data:` URL, for policies that see.',
);

/** Most characters of a board's text, and of its picture as text. */
const MAX_OBSERVATION_LENGTH = 100_000;

/** Observation space and formats of boards. */
export const BOARD_SPEC = {
  observationSpace: { type: 'Text', maxLength: MAX_OBSERVATION_LENGTH },
  observationFormats: ['text', ...TEXT_FORMS, 'structured'],
} as const satisfies Partial<EnvironmentSpec>;

/** Space of a board's text in every format, with custom symbols if there are any. */
export function boardText(symbols: { readonly [name: string]: string }): Space {
  return text(MAX_OBSERVATION_LENGTH, charactersOf(LINES, ...Object.values(symbols)));
}

/** Rows of a row-major grid. */
export function gridRows<T>(cells: readonly T[], cols: number): T[][] {
  return Array.from({ length: cells.length / cols }, (_, row) => cells.slice(row * cols, (row + 1) * cols));
}

/** A reset option that pins a board: its rows, or one text with line breaks. */
export const layoutSchema = (description: string) =>
  Type.Optional(
    Type.Union(
      [
        Type.String({ maxLength: 4096 }),
        Type.Array(Type.String({ maxLength: 256 }), { minItems: 1, maxItems: 64 }),
      ],
      { description },
    ),
  );

/** A state as a map in symbols, as coordinates in words, as data, and as a picture. */
interface GridForms<State> {
  readonly grid: (state: State) => string;
  readonly coord: (state: State) => string;
  readonly structured: (state: State) => Json;
  readonly render: (state: State) => Picture;
}

/** The observation of a grid in one of RAGEN's forms; any other form gets the data. */
export function inForm<State>(state: State, form: ObservationFormat, forms: GridForms<State>): Json {
  switch (form) {
    case 'grid':
      return forms.grid(state);
    case 'coord':
      return forms.coord(state);
    case 'grid_coord':
      return `Coordinates: \n${forms.coord(state)}\nGrid Map: \n${forms.grid(state)}`;
    case 'image':
      return pictureUrl(forms.render(state));
    default:
      return forms.structured(state);
  }
}

/** The keys of a configuration that say how a board is shown. */
interface GridConfig {
  readonly observation_format: ObservationFormat;
  readonly symbols: { readonly [name: string]: string };
}

/**
 * Parts of the description that depend on a grid's form: coordinates need no legend, a picture gets a legend of its
 * figures, and only a bare grid has a closed vocabulary.
 */
export function describeInForm(
  { observation_format: form, symbols }: GridConfig,
  kinds: CellKinds,
  { instruction, actions }: { readonly instruction: string; readonly actions: readonly string[] },
): Description {
  if (form === 'coord') return { instruction, actions };
  const legend = Object.entries(kinds).map(([name, [, meaning, figure]]) => ({
    symbol: form === 'image' ? figure : symbols[name],
    meaning,
  }));
  if (form === 'grid_coord' || form === 'image') return { instruction, legend, actions };
  return { instruction, legend, actions, vocabulary: [...legend.map(entry => entry.symbol), ...actions] };
}
