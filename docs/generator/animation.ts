import { render } from 'preact-render-to-string';
import { drawBoard } from '../../site/boards/board.ts';
import { boardStyle } from './board-style.ts';
import type { Frame, PlayedFrames } from './episode-frames.ts';
import { figure, label, rounded } from './svg.ts';

const SECONDS_PER_FRAME = 0.9;
/** The last frame stays this many times as long. */
const LAST_FRAMES = 3;
/** Most room of a board that is a drawing. */
const DRAWING_HEIGHT = 200;
const DRAWING_WIDTH = 440;
/** Room of a board made of markup; only a browser knows its size. */
const MARKUP_WIDTH = 520;
const MARKUP_HEIGHT = 200;
const MARGIN = 16;
const HEADER = 40;
const FOOTER = 34;
const MAX_ACTION_LENGTH = 58;
/** Id of the element around a board; it defines the site's variables. */
const SCOPE = 'b';
const LISTS_WITHOUT_MARKS = `
:where(.${SCOPE} ul[class]) { margin: 0; padding: 0; list-style: none; }`;

/** An animation within a figure: its size, elements and the number of slots that its time is divided into. */
interface AnimationCard {
  readonly width: number;
  readonly height: number;
  readonly draw: (x: number, y: number, slots: number) => string;
  readonly frames: number;
  readonly slots: number;
  /** Markup of its boards. */
  readonly markup: string;
}

/** A board as an element of a figure. */
interface DrawnBoard {
  readonly width: number;
  readonly height: number;
  at(x: number, y: number): string;
}

/** A figure in which a reference policy plays an environment, drawn as the site draws it. */
export function animation(title: string, played: PlayedFrames): string {
  const card = cardOf(title, played);
  const style = timing(card.slots, [1, LAST_FRAMES]) + styleOf(card.markup);
  return figure(
    card.width,
    card.height,
    `${title}: ${played.policy} policy`,
    card.draw(0, 0, card.slots),
    style,
  );
}

/** Several animations in one row, which begin together. */
export function animationRow(title: string, episodes: readonly (readonly [string, PlayedFrames])[]): string {
  const cards = episodes.map(([name, played]) => cardOf(name, played, true));
  const slots = Math.max(...cards.map(card => card.slots));
  const counts = cards.map(card => slots - card.frames + 1);
  const style = timing(slots, [1, ...counts]) + styleOf(cards.map(({ markup }) => markup).join());
  let x = 0;
  const drawn = cards.map(card => {
    const body = card.draw(x, 0, slots);
    x += card.width;
    return body;
  });
  return figure(x, Math.max(...cards.map(card => card.height)), title, drawn.join('\n'), style);
}

/**
 * A frame is visible from its slot on, for a number of slots: `f1` for one. Readers who want no motion see the last frame.
 * @param counts numbers of slots that frames are visible for
 */
function timing(slots: number, counts: readonly number[]): string {
  const keyframes = [...new Set(counts)].map(
    count => `@keyframes f${count} { 0% { opacity: 1 } ${rounded((100 * count) / slots)}% { opacity: 0 } }`,
  );
  return `
.f { opacity: 0; animation: ${rounded(slots * SECONDS_PER_FRAME)}s step-end infinite f1; }
${keyframes.join('\n')}
@media (prefers-reduced-motion: reduce) { .f { animation: none !important } .last { opacity: 1 } }`;
}

/** The style of boards; they show all that fits, without bars to scroll by. */
function styleOf(markup: string): string {
  // Pages of the site take the marks off lists by their base style, which a figure does not have.
  const lists = markup.includes('<ul class') ? LISTS_WITHOUT_MARKS : '';
  return `${boardStyle(markup, `.${SCOPE}`)}${lists}
.${SCOPE} { color: var(--ink); font: 14px/1.45 ui-sans-serif, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; }
.${SCOPE} * { box-sizing: border-box; }
.${SCOPE} .board-panel, .${SCOPE} pre { max-height: none; overflow: hidden; }`;
}

function cardOf(
  title: string,
  { policy, frames, success, ended, boardHeight }: PlayedFrames,
  narrow = false,
): AnimationCard {
  const boards = frames.map(frame => boardOf(frame, boardHeight ?? MARKUP_HEIGHT));
  const bodyWidth = Math.max(...boards.map(board => board.width));
  const bodyHeight = Math.max(...boards.map(board => board.height));
  const width = Math.max(bodyWidth, narrow ? 0 : 300) + 2 * MARGIN;
  const height = HEADER + bodyHeight + FOOTER;
  const draw = (x: number, y: number, slots: number): string => {
    const header = label(x + MARGIN, y + 25, title, { kind: 'bold' });
    const player = narrow
      ? ''
      : label(x + width - MARGIN, y + 25, policy, { kind: 'soft small', anchor: 'end' });
    const drawn = frames.map((frame, i) => {
      const last = i === frames.length - 1;
      const body = boards[i].at(x + Math.round((width - boards[i].width) / 2), y + HEADER);
      const ending = last && ended ? (success ? ' · success' : ' · ended') : '';
      const caption = label(x + MARGIN, y + height - 13, captionOf(frame, narrow) + ending, {
        kind: 'soft small',
      });
      return shown(`${body}${caption}`, i, last ? slots - i : 1, last);
    });
    return [header, player, ...drawn].filter(part => part).join('\n');
  };
  const markup = boards.map(board => board.at(0, 0)).join('');
  return { width, height, frames: frames.length, slots: frames.length + LAST_FRAMES - 1, draw, markup };
}

const DRAWING =
  /^(?:<div class="board-panel [\w-]+">\s*)?<svg ([^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>.*<\/svg>)(?:\s*<\/div>)?$/s;

/** The site's drawing of a state: an SVG element, or markup in a box of a fixed size. */
function boardOf({ structured, text }: Frame, markupHeight: number): DrawnBoard {
  const board = asXml(render(drawBoard({ state: structured, text })));
  const [, inner, ratioWidth, ratioHeight] = DRAWING.exec(board) ?? [];
  if (inner !== undefined && !board.includes('class="arm"')) {
    const scale = Math.min(DRAWING_HEIGHT / Number(ratioHeight), DRAWING_WIDTH / Number(ratioWidth));
    const width = Math.round(Number(ratioWidth) * scale);
    const height = Math.round(Number(ratioHeight) * scale);
    return {
      width,
      height,
      at: (x, y) =>
        `<g class="${SCOPE}"><svg x="${x}" y="${y}" width="${width}" height="${height}" ${inner}</g>`,
    };
  }
  const markup = board.replaceAll('<svg ', '<svg xmlns="http://www.w3.org/2000/svg" ');
  return {
    width: MARKUP_WIDTH,
    height: markupHeight,
    at: (x, y) =>
      `<foreignObject x="${x}" y="${y}" width="${MARKUP_WIDTH}" height="${markupHeight}"><div xmlns="http://www.w3.org/1999/xhtml" class="${SCOPE}">${markup}</div></foreignObject>`,
  };
}

/** Markup that XML takes, smaller; sizes of fonts win over the style of figures. */
function asXml(markup: string): string {
  return (
    markup
      .replaceAll(/ font-size="([\d.]+)"/g, ' style="font-size:$1px"')
      .replaceAll(/ data-ratio="[^"]*"/g, '')
      .replaceAll(/>\s+</g, gap => (gap.includes('\n') ? '><' : gap))
      .replaceAll(/<(path|rect|circle|ellipse|polygon|use)([^>]*)><\/\1>/g, '<$1$2/>')
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what XML does not take.
      .replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, '\ufffd')
  );
}

/** A frame that is there from a slot on, for some slots. */
function shown(body: string, from: number, count: number, last: boolean): string {
  const name = count === 1 ? '' : `;animation-name:f${count}`;
  return `<g class="${last ? 'f last' : 'f'}" style="animation-delay:${rounded(from * SECONDS_PER_FRAME)}s${name}">${body}</g>`;
}

function captionOf({ step }: Frame, narrow: boolean): string {
  if (!step) return narrow ? 'start' : 'reset';
  const action = step.action.replaceAll(/\s+/g, ' ');
  const written = action.length > MAX_ACTION_LENGTH ? `${action.slice(0, MAX_ACTION_LENGTH)}…` : action;
  return narrow
    ? `${step.count}: ${written}`
    : `step ${step.count} · ${written} · reward ${Math.round(step.reward * 1000) / 1000}`;
}
