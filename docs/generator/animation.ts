import type { Frame, PlayedFrames } from './episode-frames.ts';
import { escapeXml, figure, label, rounded } from './svg.ts';

const SECONDS_PER_FRAME = 0.9;
/** The last frame stays this many times as long. */
const LAST_FRAMES = 3;
const PICTURE_HEIGHT = 200;
const PICTURE_WIDTH = 440;
const COLUMNS = 84;
const LINES = 14;
const CHARACTER_WIDTH = 7.3;
const LINE_HEIGHT = 16;
const MARGIN = 16;
const HEADER = 40;
const FOOTER = 34;
const MAX_ACTION_LENGTH = 58;

/** An animation within a figure: its size, elements and the number of slots that its time is divided into. */
interface AnimationCard {
  readonly width: number;
  readonly height: number;
  readonly draw: (x: number, y: number, slots: number) => string;
  readonly slots: number;
}

/** A figure in which a reference policy plays an environment: pictures where there are any, else text as in a terminal. */
export function animation(title: string, played: PlayedFrames): string {
  const card = cardOf(title, played);
  const style = timing(card.slots);
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
  let x = 0;
  const drawn = cards.map(card => {
    const body = card.draw(x, 0, slots);
    x += card.width;
    return body;
  });
  return figure(x, Math.max(...cards.map(card => card.height)), title, drawn.join('\n'), timing(slots));
}

/** Frame `i` is visible in slot `i`; the last one to the end. Readers who want no motion see the last frame. */
function timing(slots: number): string {
  const share = rounded(100 / slots);
  return `
.f { opacity: 0; animation: ${rounded(slots * SECONDS_PER_FRAME)}s step-end infinite f; }
@keyframes f { 0% { opacity: 1 } ${share}% { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { .f { animation: none } .last { opacity: 1 } }`;
}

function cardOf(
  title: string,
  { policy, frames, success, ended }: PlayedFrames,
  narrow = false,
): AnimationCard {
  const image = frames[0].image;
  const scale = image ? Math.min(PICTURE_HEIGHT / image.height, PICTURE_WIDTH / image.width) : 1;
  const lines = frames.map(frame => (image ? [] : wrapped(frame.text)));
  const bodyWidth = image ? Math.round(image.width * scale) : Math.ceil(COLUMNS * CHARACTER_WIDTH);
  const bodyHeight = image
    ? Math.round(image.height * scale)
    : Math.max(...lines.map(each => each.length)) * LINE_HEIGHT;
  const width = Math.max(bodyWidth, narrow ? 0 : 300) + 2 * MARGIN;
  const height = HEADER + bodyHeight + FOOTER;
  const draw = (x: number, y: number, slots: number): string => {
    const header = label(x + MARGIN, y + 25, title, { kind: 'bold' });
    const player = narrow
      ? ''
      : label(x + width - MARGIN, y + 25, policy, { kind: 'soft small', anchor: 'end' });
    const drawn = frames.map((frame, i) => {
      const last = i === frames.length - 1;
      const body = frame.image
        ? `<image x="${x + Math.round((width - bodyWidth) / 2)}" y="${y + HEADER}" width="${bodyWidth}" height="${bodyHeight}" href="${frame.image.url}"/>`
        : terminal(lines[i], x + MARGIN, y + HEADER);
      const ending = last && ended ? (success ? ' · success' : ' · ended') : '';
      const caption = label(x + MARGIN, y + height - 13, captionOf(frame, narrow) + ending, {
        kind: 'soft small',
      });
      return shown(`${body}${caption}`, i, last ? slots - i : 1, last);
    });
    return [header, player, ...drawn].filter(part => part).join('\n');
  };
  return { width, height, slots: frames.length + LAST_FRAMES - 1, draw };
}

/** A frame that is there from a slot on, for some slots. */
function shown(body: string, from: number, count: number, last: boolean): string {
  const once = (slot: number): string =>
    `<g class="f" style="animation-delay:${rounded(slot * SECONDS_PER_FRAME)}s">${body}</g>`;
  if (count === 1) return once(from);
  // The same elements in the slots that follow, by reference.
  const id = `l${hash(body)}`;
  const others = Array.from(
    { length: count - 1 },
    (_, i) =>
      `<use href="#${id}" class="f" style="animation-delay:${rounded((from + i + 1) * SECONDS_PER_FRAME)}s"/>`,
  );
  const first = `<use href="#${id}" class="f${last ? ' last' : ''}" style="animation-delay:${rounded(from * SECONDS_PER_FRAME)}s"/>`;
  return `<defs><g id="${id}">${body}</g></defs>${first}${others.join('')}`;
}

/** FNV-1a: a name for an element that is the same in every run. */
function hash(text: string): string {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  return (value >>> 0).toString(36);
}

function captionOf({ step }: Frame, narrow: boolean): string {
  if (!step) return narrow ? 'start' : 'reset';
  const action = step.action.replaceAll(/\s+/g, ' ');
  const written = action.length > MAX_ACTION_LENGTH ? `${action.slice(0, MAX_ACTION_LENGTH)}…` : action;
  return narrow
    ? `${step.count}: ${written}`
    : `step ${step.count} · ${written} · reward ${Math.round(step.reward * 1000) / 1000}`;
}

function terminal(lines: readonly string[], x: number, y: number): string {
  return lines
    .map(
      (line, i) =>
        `<text xml:space="preserve" class="mono" x="${x}" y="${y + 12 + i * LINE_HEIGHT}">${escapeXml(line)}</text>`,
    )
    .join('');
}

/** The last lines of a text, broken at spaces, as a terminal shows them. */
function wrapped(text: string): string[] {
  const lines = text.split('\n').flatMap(line => {
    const parts: string[] = [];
    let rest = line;
    while (rest.length > COLUMNS) {
      const space = rest.lastIndexOf(' ', COLUMNS);
      const at = space > COLUMNS / 2 ? space : COLUMNS;
      parts.push(rest.slice(0, at));
      rest = rest.slice(at).trimStart();
    }
    return [...parts, rest];
  });
  return lines.length > LINES ? [...lines.slice(0, LINES - 1), '…'] : lines;
}
