/** A setting's value as YAML on one line, with lists as JSON. */
export type SettingValue = string | number | boolean | null;

/** Sections that describe environments and servers (with their tokens); runs are not compared by them. */
const LEFT_OUT = new Set(['servers', 'tags']);
const LINE = /^( *)("?)([\w.@/-]+)\2:(?: (.*))?$/;
const ITEM = /^ *- (.*)$/;
/** Unquoted text with only one reading: not another form of a number, no comment, no further key. */
const PLAIN = /^(?!(?:true|false|null)$)(?:[A-Za-z_(]|\.{0,2}\/)[^#:]*$/i;
const CONSTANT = /^(?:true|false|null|~)$/;
const NUMBER = /^-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?$/;

/**
 * Settings as `section.key`, read from the YAML that the trainer writes. The general parser takes 14 ms for such a
 * file, this one 0.2 ms, so that a table of 10,000 runs can filter by settings.
 * @returns undefined for YAML of another form, which needs the general parser
 */
export function flatSettings(text: string): Map<string, SettingValue> | undefined {
  const settings = new Map<string, SettingValue>();
  const path: string[] = [];
  let list: { readonly key: string; readonly indent: number; readonly items: SettingValue[] } | undefined;
  const endList = (indent: number) => {
    if (list && list.items.length > 0) settings.set(list.key, JSON.stringify(list.items));
    else if (list && indent <= list.indent) settings.set(list.key, null);
    list = undefined;
  };
  let skippedFrom: number | undefined;
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const indent = line.length - line.trimStart().length;
    if (skippedFrom !== undefined) {
      if (indent > skippedFrom || line[indent] === '-') continue;
      skippedFrom = undefined;
    }
    const item = ITEM.exec(line);
    if (item && list && indent >= list.indent) {
      const scalar = scalarOf(item[1]);
      if (scalar === undefined) return undefined;
      list.items.push(scalar);
      continue;
    }
    endList(indent);
    const [, , , key, value = ''] = LINE.exec(line) ?? [];
    if (key === undefined || indent % 2 === 1 || indent / 2 > path.length) return undefined;
    path.length = indent / 2;
    path.push(key);
    if (indent === 0 && LEFT_OUT.has(key)) {
      skippedFrom = 0;
      continue;
    }
    const name = path.join('.');
    if (value === '') {
      list = { key: name, indent, items: [] };
    } else if (value === '[]' || value === '{}') {
      settings.set(name, value);
    } else {
      const scalar = scalarOf(value);
      if (scalar === undefined) return undefined;
      settings.set(name, scalar);
    }
  }
  endList(0);
  return settings;
}

/** The same from a parsed value. */
export function flattened(config: unknown): [key: string, value: SettingValue][] {
  return allSettings(config).filter(([key]) => !LEFT_OUT.has(key.split('.', 1)[0]));
}

/** Settings as `section.key`, including those of environments and servers. */
export function allSettings(config: unknown, prefix = ''): [key: string, value: SettingValue][] {
  if (typeof config !== 'object' || config === null) return [];
  return Object.entries(config).flatMap(([name, value]): [string, SettingValue][] => {
    const key = prefix + name;
    const nested = typeof value === 'object' && value !== null;
    if (nested && !Array.isArray(value) && Object.keys(value).length > 0)
      return allSettings(value, `${key}.`);
    return [[key, nested ? JSON.stringify(value) : (value as SettingValue)]];
  });
}

/** A value on one line; undefined where only the general parser can read it. */
function scalarOf(text: string): SettingValue | undefined {
  if (NUMBER.test(text)) return Number(text);
  if (CONSTANT.test(text)) return text.startsWith('t') ? true : text === 'false' ? false : null;
  if (/^(?:'[^']*'|"[^"\\]*")$/.test(text)) return text.slice(1, -1);
  return PLAIN.test(text) && !text.endsWith(' ') ? text : undefined;
}

/** The configuration of an environment for a title: its preset, or the changed keys; empty for the default. */
export function presetText(config: { readonly [key: string]: unknown }): string {
  if (typeof config.preset === 'string' && Object.keys(config).length === 1) return config.preset;
  return Object.entries(config)
    .map(([key, value]) => `${key} ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ');
}
