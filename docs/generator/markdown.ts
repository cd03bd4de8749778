import type { Json } from '../../shared/json.ts';

/** A Markdown table; cells are escaped. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map(escapeCell).join(' | ')} |`;
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line)].join('\n');
}

function escapeCell(text: string): string {
  const lines = text.replaceAll('|', '\\|').split('\n');
  return lines
    .map((line, at) => (at === 0 ? line.trimEnd() : line.trim()))
    .filter(Boolean)
    .join(' ');
}

export function code(value: Json): string {
  return `\`${typeof value === 'string' ? value : JSON.stringify(value)}\``;
}

/** The anchor that GitHub gives a heading. */
export function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\p{M} _-]/gu, '')
    .trim()
    .replaceAll(' ', '-');
}

/** A fenced block of plain text. */
export function block(text: string, language = 'text'): string {
  return `\`\`\`${language}\n${text}\n\`\`\``;
}

export interface Bounds {
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
}

/** As much of JSON Schema as configurations use. */
interface Schema extends Bounds {
  readonly type?: string;
  readonly const?: Json;
  readonly default?: Json;
  readonly description?: string;
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: { readonly [key: string]: Schema };
  readonly maxItems?: number;
  readonly minItems?: number;
}

/**
 * The keys of an object schema, a line each: `key` (values; default): meaning. Nested objects have dotted keys, or one line
 * where no key of theirs has a description.
 * @param leftOut keys that another page explains
 */
export function schemaLines(schema: unknown, leftOut: ReadonlySet<string> = new Set()): string[] {
  return schemaRows(schema as Schema, '', leftOut).map(([name, kinds, fallback, meaning]) => {
    const range = fallback === '' ? kinds : `${kinds}; ${fallback}`;
    return meaning === '' ? `${name} (${range})` : `${name} (${range}): ${meaning}`;
  });
}

function schemaRows(schema: Schema, prefix: string, leftOut: ReadonlySet<string>): string[][] {
  return Object.entries(schema.properties ?? {}).flatMap(([key, property]) => {
    const name = `${prefix}${key}`;
    if (leftOut.has(name)) return [];
    if (property.properties) {
      const inner = Object.entries(property.properties);
      if (inner.some(([, { description, default: fallback }]) => description || fallback === undefined)) {
        return schemaRows(property, `${name}.`, leftOut);
      }
      const defaults = Object.fromEntries(inner.map(([key, { default: fallback }]) => [key, fallback!]));
      return [[code(name), 'object', code(defaults), property.description ?? '']];
    }
    const fallback = property.default === undefined ? '' : defaultOf(property);
    return [[code(name), values(property), fallback, property.description ?? '']];
  });
}

/** The default as text; `all` for every choice of a list. */
function defaultOf({ default: fallback, items }: Schema): string {
  const choices = items?.anyOf?.map(({ const: choice }) => choice);
  return choices && JSON.stringify(choices) === JSON.stringify(fallback) ? 'all' : code(fallback!);
}

/** Most choices of a setting that a page lists; the API's schema has all. */
const MAX_CHOICES = 20;

function values(schema: Schema): string {
  if (schema.const !== undefined) return code(schema.const);
  if (schema.anyOf && schema.anyOf.length > MAX_CHOICES && schema.anyOf[0].const !== undefined) {
    return `one of ${schema.anyOf.length}, e.g. ${values(schema.anyOf[0])}`;
  }
  if (schema.anyOf) return schema.anyOf.map(values).join(', ');
  if (schema.type === 'array') {
    const { minItems, maxItems } = schema;
    const items = values(schema.items ?? {});
    if (minItems === maxItems && minItems !== undefined) return `${minItems} × ${items}`;
    return /^\w+(\[\])*$/.test(items) ? `${items}[]` : `list: ${items}`;
  }
  return typeOf(schema, 'JSON');
}

/** The type of a value, e.g. `boolean`, `integer ≥1` or `0…1`: a range alone is one of numbers. */
export function typeOf(schema: Bounds & { readonly type?: string }, unknown: string): string {
  const range = rangeOf(schema);
  return schema.type === 'number' && range !== '' ? range.trimStart() : `${schema.type ?? unknown}${range}`;
}

/** The range of a number, e.g. ` ≥0`, ` >0 ≤1` or ` 0…1`; empty without bounds. */
function rangeOf({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Bounds): string {
  const most = maximum === Number.MAX_SAFE_INTEGER ? undefined : maximum;
  if (minimum !== undefined && most !== undefined) return ` ${minimum}…${most}`;
  const bounds = { '≥': minimum, '>': exclusiveMinimum, '≤': most, '<': exclusiveMaximum };
  return Object.entries(bounds)
    .map(([sign, bound]) => (bound === undefined ? '' : ` ${sign}${bound}`))
    .join('');
}

/** 0.123 as `12.3 %`. */
export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

/** A number with at most three decimals. */
export function decimal(value: number): string {
  return Number.isFinite(value) ? String(Number(value.toFixed(3))) : value > 0 ? '∞' : '−∞';
}

const WIDTH = 120;
/** Links and code stay whole. */
const PARTS = /!?\[[^\][]*\]\([^()]*\)|`[^`]+`|\s+|\S/g;
/** Text with a special meaning at the start of a line. */
const BEGINS_SOMETHING = /^(?:[-+*#]+$|[>=|]|\d+[.)]$)/;

/** Text with paragraphs, lists and quotes of at most 120 columns; tables, headings and fenced blocks stay. */
export function wrapped(markdown: string): string {
  let isFenced = false;
  return markdown
    .split('\n')
    .map(line => {
      if (line.startsWith('```')) isFenced = !isFenced;
      return isFenced || line.length <= WIDTH || /^[|#<]/.test(line) ? line : wrappedLine(line);
    })
    .join('\n');
}

function wrappedLine(line: string): string {
  const [start] = /^ *(?:> |- |\d+\. )?/.exec(line) as RegExpExecArray;
  const next = start.includes('>') ? start : ' '.repeat(start.length);
  const lines: string[] = [];
  let current = start;
  for (const word of wordsOf(line.slice(start.length))) {
    const isFirst = current === start || current === next;
    if (!isFirst && current.length + 1 + word.length > WIDTH) {
      lines.push(current);
      current = next + word;
    } else {
      current += isFirst ? word : ` ${word}`;
    }
  }
  return [...lines, current].join('\n');
}

/** Words that a line may begin with; one that would begin a list or quote stays with the word before it. */
function wordsOf(line: string): string[] {
  const words = [''];
  for (const [part] of line.matchAll(PARTS)) {
    if (part.trim() === '') words.push('');
    else words[words.length - 1] += part;
  }
  return words.filter(Boolean).reduce<string[]>((units, word) => {
    if (units.length > 0 && BEGINS_SOMETHING.test(word)) units.push(`${units.pop()} ${word}`);
    else units.push(word);
    return units;
  }, []);
}
