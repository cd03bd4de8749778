/** Text of an observation. */
type TextPart = { readonly type: 'text'; readonly text: string };

/** A picture of an observation. */
export type ImagePart = {
  readonly type: 'image';
  /** Such as `image/png`. */
  readonly mime: string;
  /** Base64. */
  readonly data: string;
  /** In pixels; known only for PNGs. */
  readonly width?: number;
  readonly height?: number;
};

/** A part of an observation, in the form that vision models take. */
export type ObservationPart = TextPart | ImagePart;

/** A picture as text: a `data:` URL. */
const DATA_URL = /data:(image\/[a-z0-9.+-]+);base64,([A-Za-z0-9+/]+={0,2})/g;
const DATA_URL_START = 'data:image/';
/** Base64 of the leading bytes of a PNG, up to its width and height. */
const PNG_HEAD_LENGTH = 32;
const PNG_SIGNATURE = '\x89PNG\r\n\x1a\n';
const WIDTH_AT = 16;
const HEIGHT_AT = 20;

/** Splits text with pictures into parts, in order; a line break next to a picture is dropped. */
export function partsOfText(text: string): ObservationPart[] {
  if (!text.includes(DATA_URL_START)) return [{ type: 'text', text }];
  const parts: ObservationPart[] = [];
  let end = 0;
  const addText = (piece: string) => {
    if (piece !== '') parts.push({ type: 'text', text: piece });
  };
  for (const match of text.matchAll(DATA_URL)) {
    const [url, mime, data] = match;
    const before = text.slice(end, match.index);
    addText((end > 0 ? before.replace(/^\n/, '') : before).replace(/\n$/, ''));
    parts.push({ type: 'image', mime, data, ...sizeOfImage(mime, data) });
    end = match.index + url.length;
  }
  const rest = text.slice(end);
  addText(end > 0 ? rest.replace(/^\n/, '') : rest);
  return parts;
}

/** Parts as text with pictures as `data:` URLs, the form that {@link partsOfText} reads. */
export function textOfParts(parts: readonly ObservationPart[]): string {
  return parts.map(part => (part.type === 'text' ? part.text : urlOfImage(part))).join('\n');
}

/** A picture as a `data:` URL. */
export function urlOfImage({ mime, data }: ImagePart): string {
  return `data:${mime};base64,${data}`;
}

/** Text with a label in place of each picture, as in `[image/png 96x96]`. */
export function withoutImages(text: string): string {
  if (!text.includes(DATA_URL_START)) return text;
  return text.replaceAll(DATA_URL, (_url, mime: string, data: string) => {
    const { width, height } = sizeOfImage(mime, data);
    return width === undefined ? `[${mime}]` : `[${mime} ${width}x${height}]`;
  });
}

/** True if a value is a list of parts. */
export function isParts(value: unknown): value is readonly ObservationPart[] {
  return Array.isArray(value);
}

function sizeOfImage(mime: string, data: string): { width?: number; height?: number } {
  if (mime !== 'image/png' || data.length < PNG_HEAD_LENGTH) return {};
  const head = atob(data.slice(0, PNG_HEAD_LENGTH));
  if (!head.startsWith(PNG_SIGNATURE)) return {};
  return { width: numberAt(head, WIDTH_AT), height: numberAt(head, HEIGHT_AT) };
}

/** A big-endian 32-bit number. */
function numberAt(bytes: string, at: number): number {
  let number = 0;
  for (let i = at; i < at + 4; i++) number = number * 256 + bytes.charCodeAt(i);
  return number;
}
