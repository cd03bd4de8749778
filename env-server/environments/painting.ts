import type { Picture } from './environment.ts';
import { GLYPH_HEIGHT, GLYPH_WIDTH, glyphOf } from './font.ts';

/** 0xRRGGBB. */
export type Color = number;

/** One glyph column of space between characters, in font pixels. */
const ADVANCE = GLYPH_WIDTH + 1;

/** Pixels from which on a call of `fill` costs less than a loop. */
const LONG_LINE = 32;

/** A picture in the making. What lies outside it is not painted. */
export class Canvas implements Picture {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
  /** The same bytes, a pixel each. */
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

  /** Text around a point, as large as fits a square of `room` pixels. */
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

/** Opaque, in this machine's order of bytes. */
function pixelOf(color: Color): number {
  bytes[0] = color >> 16;
  bytes[1] = color >> 8;
  bytes[2] = color;
  bytes[3] = 255;
  return word[0];
}

/** Pixels that a line of text takes. */
export function textWidth(text: string, scale: number): number {
  return Math.max(text.length * ADVANCE - 1, 0) * scale;
}

const PAGE_WIDTH = 720;
const PAGE_MARGIN = 16;
const PAGE_SCALE = 2;
const LINE_HEIGHT = (GLYPH_HEIGHT + 3) * PAGE_SCALE;
const PAPER: Color = 0xfdfdfb;
const INK: Color = 0x202428;

/** Text as a page, its long lines wrapped between words. */
export function paintPage(text: string): Picture {
  const columns = Math.floor((PAGE_WIDTH - 2 * PAGE_MARGIN) / (ADVANCE * PAGE_SCALE));
  const lines = text.split('\n').flatMap(line => wrap(line, columns));
  const page = new Canvas(PAGE_WIDTH, 2 * PAGE_MARGIN + lines.length * LINE_HEIGHT, PAPER);
  for (const [index, line] of lines.entries()) {
    page.text(line, PAGE_MARGIN, PAGE_MARGIN + index * LINE_HEIGHT, PAGE_SCALE, INK);
  }
  return page;
}

/** Lines of at most `columns` characters; a word longer than that is cut. */
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
