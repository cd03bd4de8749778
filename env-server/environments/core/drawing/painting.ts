import type { Picture } from '../environment.ts';

/**
 * Glyphs of printable ASCII, 5 wide and 8 high: for each character from space to `~` five columns from the left, one
 * byte each, top pixel in the lowest bit.
 */
const GLYPHS = [
  '0000000000 00005f0000 0007000700 147f147f14 242a7f2a12 2313086462 3649562050 0008070300',
  '001c224100 0041221c00 2a1c7f1c2a 08083e0808 0080703000 0808080808 0000606000 2010080402',
  '3e5149453e 00427f4000 7249494946 2141494d33 1814127f10 2745454539 3c4a494931 4121110907',
  '3649494936 464949291e 0000140000 0040340000 0008142241 1414141414 0041221408 0201590906',
  '3e415d594e 7c1211127c 7f49494936 3e41414122 7f4141413e 7f49494941 7f09090901 3e41415173',
  '7f0808087f 00417f4100 2040413f01 7f08142241 7f40404040 7f021c027f 7f0408107f 3e4141413e',
  '7f09090906 3e4151215e 7f09192946 2649494932 03017f0103 3f4040403f 1f2040201f 3f4038403f',
  '6314081463 0304780403 6159494d43 007f414141 0204081020 004141417f 0402010204 4040404040',
  '0003070800 2054547840 7f28444438 3844444428 384444287f 3854545418 00087e0902 18a4a49c78',
  '7f08040478 00447d4000 2040403d00 7f10284400 00417f4000 7c04780478 7c08040478 3844444438',
  'fc18242418 18242418fc 7c08040408 4854545424 04043f4424 3c4040207c 1c2040201c 3c4030403c',
  '4428102844 4c9090907c 4464544c44 0008364100 0000770000 0041360800 0201020402',
]
  .join(' ')
  .split(' ')
  .map(hex => Uint8Array.from(hex.match(/../g) ?? [], byte => Number.parseInt(byte, 16)));

const GLYPH_WIDTH = 5;
const GLYPH_HEIGHT = 8;

/** Columns of a character's glyph; characters outside printable ASCII get the glyph of `?`. */
function glyphOf(character: string): Uint8Array {
  return GLYPHS[character.charCodeAt(0) - 32] ?? GLYPHS['?'.charCodeAt(0) - 32];
}

/** 0xRRGGBB. */
export type Color = number;

/** One glyph column of space between characters, in font pixels. */
const ADVANCE = GLYPH_WIDTH + 1;

/** Width in pixels from which `fill` is faster than a loop. */
const LONG_LINE = 32;

/** A picture being painted. Anything outside its bounds is clipped. */
export class Canvas implements Picture {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
  /** The same bytes, one element a pixel. */
  readonly #pixels: Uint32Array;

  constructor(width: number, height: number, background: Color) {
    this.width = width;
    this.height = height;
    this.data = new Uint8Array(4 * width * height);
    this.#pixels = new Uint32Array(this.data.buffer).fill(pixelOf(background));
  }

  /** A filled rectangle, corner and size in pixels. */
  fill(x: number, y: number, width: number, height: number, color: Color): void {
    const bottom = Math.min(y + height, this.height);
    for (let row = Math.max(y, 0); row < bottom; row++) this.#line(row, x, x + width, pixelOf(color));
  }

  /** A filled circle. */
  disc(centerX: number, centerY: number, radius: number, color: Color): void {
    const top = Math.max(Math.ceil(centerY - radius), 0);
    const bottom = Math.min(Math.floor(centerY + radius), this.height - 1);
    for (let row = top; row <= bottom; row++) {
      const half = Math.sqrt(radius * radius - (row - centerY) ** 2);
      this.#line(row, Math.ceil(centerX - half), Math.floor(centerX + half) + 1, pixelOf(color));
    }
  }

  /** A line of text from its upper left corner; every font pixel is `scale` pixels wide. */
  text(text: string, x: number, y: number, scale: number, color: Color): void {
    for (let index = 0; index < text.length; index++) {
      const glyph = glyphOf(text[index]);
      for (let col = 0; col < GLYPH_WIDTH; col++) {
        for (let row = 0; row < GLYPH_HEIGHT; row++) {
          if ((glyph[col] >> row) & 1) {
            this.fill(x + (index * ADVANCE + col) * scale, y + row * scale, scale, scale, color);
          }
        }
      }
    }
  }

  /** Text centered on a point, as large as fits a square of `room` pixels. */
  label(text: string, centerX: number, centerY: number, room: number, color: Color): void {
    const scale = Math.max(1, Math.floor(room / Math.max(textWidth(text, 1), GLYPH_HEIGHT)));
    const x = Math.round(centerX - textWidth(text, scale) / 2);
    const y = Math.round(centerY - ((GLYPH_HEIGHT - 1) * scale) / 2);
    this.text(text, x, y, scale, color);
  }

  /** Pixels of a row from `left` to before `right`. */
  #line(row: number, left: number, right: number, pixel: number): void {
    const start = row * this.width;
    const from = Math.max(left, 0);
    const to = Math.min(right, this.width);
    const pixels = this.#pixels;
    if (to - from >= LONG_LINE) pixels.fill(pixel, start + from, start + to);
    else for (let at = start + from; at < start + to; at++) pixels[at] = pixel;
  }
}

const bytes = new Uint8Array(4);
const word = new Uint32Array(bytes.buffer);

/** Opaque, in this machine's byte order. */
function pixelOf(color: Color): number {
  bytes[0] = color >> 16;
  bytes[1] = color >> 8;
  bytes[2] = color;
  bytes[3] = 255;
  return word[0];
}

/** A part of a canvas with its own origin and scale; adjacent rectangles share pixel edges. */
export class CanvasRegion {
  readonly #canvas: Canvas;
  readonly #x: number;
  readonly #y: number;
  readonly #scale: number;

  constructor(canvas: Canvas, x: number, y: number, scale: number) {
    this.#canvas = canvas;
    this.#x = x;
    this.#y = y;
    this.#scale = scale;
  }

  fill(x: number, y: number, width: number, height: number, color: Color): void {
    const left = Math.round(x * this.#scale);
    const top = Math.round(y * this.#scale);
    const right = Math.round((x + width) * this.#scale);
    const bottom = Math.round((y + height) * this.#scale);
    this.#canvas.fill(this.#x + left, this.#y + top, right - left, bottom - top, color);
  }

  disc(centerX: number, centerY: number, radius: number, color: Color): void {
    const scale = this.#scale;
    this.#canvas.disc(this.#x + centerX * scale, this.#y + centerY * scale, radius * scale, color);
  }
}

/** Width of a line of text in pixels. */
export function textWidth(text: string, scale: number): number {
  return Math.max(text.length * ADVANCE - 1, 0) * scale;
}

/** Longest side of a picture of a board, in pixels; very long boards get longer ones. */
const MAX_SIDE = 768;
const MIN_CELL = 8;

/**
 * A picture of a board, painted cell by cell in row-major order.
 * @param usual units of a cell's side: its pixels unless the board is too large for that
 */
export function paintCells(
  { rows, cols }: { readonly rows: number; readonly cols: number },
  usual: number,
  background: Color,
  paint: (at: CanvasRegion, cell: number) => void,
): Canvas {
  const side = cellSize(rows, cols, usual);
  const canvas = new Canvas(cols * side, rows * side, background);
  for (let cell = 0; cell < rows * cols; cell++) {
    paint(new CanvasRegion(canvas, (cell % cols) * side, Math.floor(cell / cols) * side, side / usual), cell);
  }
  return canvas;
}

/** Pixels of a cell's side: `usual` unless the board is too large for that. */
export function cellSize(rows: number, cols: number, usual: number): number {
  return Math.max(MIN_CELL, Math.min(usual, Math.floor(MAX_SIDE / Math.max(rows, cols))));
}

/** Punctuation with an ASCII equivalent. */
const PLAIN: { readonly [character: string]: string } = {
  '‘': "'",
  '’': "'",
  '“': '"',
  '”': '"',
  '–': '-',
  '—': '-',
  '−': '-',
  '×': 'x',
  '•': '*',
  '·': '*',
};

/** Text in paintable characters, where there is a likeness: accents are dropped, quotation marks become plain. */
export function printable(text: string): string {
  return text
    .normalize('NFKD')
    .replaceAll(/\p{M}/gu, '')
    .replaceAll(/[^ -~\n]/g, character => PLAIN[character] ?? character);
}

/** Lines of a page; consecutive buttons share rows, unless one is set apart. */
export interface PagePart {
  readonly text: string;
  readonly look: 'heading' | 'text' | 'button' | 'pressed';
  /** Begins a new row. */
  readonly apart?: boolean;
}

const PAGE_WIDTH = 720;
const PAGE_MARGIN = 16;
const PAGE_SCALE = 2;
const HEADING_SCALE = 3;
const LINE_GAP = 6;
const BUTTON_PADDING = 6;
const PAPER: Color = 0xfdfdfb;
const INK: Color = 0x202428;
const ACCENT: Color = 0x1f5fae;
const ACCENT_PALE: Color = 0xe3ecf7;

interface PlacedText {
  readonly text: string;
  readonly look: PagePart['look'];
  readonly x: number;
  readonly y: number;
}

/** A page of wrapped text with buttons. */
export function paintPage(parts: readonly PagePart[]): Picture {
  const { placed, height } = layOut(parts);
  const page = new Canvas(PAGE_WIDTH, height, PAPER);
  for (const { text, look, x, y } of placed) {
    if (look === 'button' || look === 'pressed') paintButton(page, text, x, y, look === 'pressed');
    else page.text(text, x, y, scaleOf(look), INK);
  }
  return page;
}

function layOut(parts: readonly PagePart[]): { placed: readonly PlacedText[]; height: number } {
  const placed: PlacedText[] = [];
  const inner = PAGE_WIDTH - 2 * PAGE_MARGIN;
  let x = PAGE_MARGIN;
  let y = PAGE_MARGIN;
  const buttonHeight = GLYPH_HEIGHT * PAGE_SCALE + 2 * BUTTON_PADDING;
  const endRow = (): void => {
    if (x > PAGE_MARGIN) y += buttonHeight + LINE_GAP;
    x = PAGE_MARGIN;
  };
  for (const { text, look, apart } of parts) {
    const plain = printable(text);
    if (look === 'heading' || look === 'text') {
      endRow();
      const scale = scaleOf(look);
      for (const line of plain
        .split('\n')
        .flatMap(whole => wrap(whole, Math.floor(inner / (ADVANCE * scale))))) {
        placed.push({ text: line, look, x, y });
        y += GLYPH_HEIGHT * scale + LINE_GAP;
      }
      continue;
    }
    const fits = Math.floor((inner - 2 * BUTTON_PADDING) / (ADVANCE * PAGE_SCALE));
    const label = plain.length > fits ? `${plain.slice(0, fits - 3)}...` : plain;
    const width = textWidth(label, PAGE_SCALE) + 2 * BUTTON_PADDING;
    if (apart || x + width > PAGE_WIDTH - PAGE_MARGIN) endRow();
    placed.push({ text: label, look, x, y });
    x += width + LINE_GAP;
  }
  endRow();
  return { placed, height: y - LINE_GAP + PAGE_MARGIN };
}

function scaleOf(look: PagePart['look']): number {
  return look === 'heading' ? HEADING_SCALE : PAGE_SCALE;
}

function paintButton(page: Canvas, text: string, x: number, y: number, pressed: boolean): void {
  const width = textWidth(text, PAGE_SCALE) + 2 * BUTTON_PADDING;
  const height = GLYPH_HEIGHT * PAGE_SCALE + 2 * BUTTON_PADDING;
  page.fill(x, y, width, height, ACCENT);
  if (!pressed) page.fill(x + 1, y + 1, width - 2, height - 2, ACCENT_PALE);
  page.text(text, x + BUTTON_PADDING, y + BUTTON_PADDING + 1, PAGE_SCALE, pressed ? PAPER : ACCENT);
}

/** Lines of at most `columns` characters; longer words are cut. */
export function wrap(line: string, columns: number): string[] {
  const lines: string[] = [];
  let rest = line;
  while (rest.length > columns) {
    const space = rest.lastIndexOf(' ', columns);
    const cut = space > 0 ? space : columns;
    lines.push(rest.slice(0, cut));
    rest = rest.slice(cut).trimStart();
  }
  lines.push(rest);
  return lines;
}
