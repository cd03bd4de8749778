import { readFileSync } from 'node:fs';

const WEB = new URL('../../site/', import.meta.url);
const SHEETS = ['styles/elements.css', 'styles/layout.css', 'components/components.css', 'boards/boards.css'];
const TOKENS = ['styles/tokens.css', 'boards/boards.css'];

interface Rule {
  readonly selectors: readonly string[];
  readonly declarations: readonly string[];
}

/**
 * The rules of the site's style sheets that some boards need, for both color schemes. `scope` defines the
 * site's colors as variables.
 * @param markup of the boards
 */
export function boardStyle(markup: string, scope: string): string {
  const classes = [...markup.matchAll(/class="([^"]*)"/g)].flatMap(([, names]) => names.split(/\s+/));
  const attributes = [...markup.matchAll(/ ([\w-]+)="/g)].map(([, name]) => `[${name}`);
  const elements = markup.match(/(?<=<)\w+/g) ?? [];
  const present = new Set([...classes.map(name => `.${name}`), ...attributes, ...elements]);
  const needed = SHEETS.flatMap(sheet => rulesOf(read(sheet))).flatMap(({ selectors, declarations }) => {
    const matching = selectors.filter(selector => isKnown(selector, present)).map(own => `${scope} ${own}`);
    const lasting = declarations.filter(declaration => !/^(transition|animation|cursor)\b/.test(declaration));
    return matching.length > 0 && lasting.length > 0 ? [{ selectors: matching, declarations: lasting }] : [];
  });
  const used = JSON.stringify(needed) + markup;
  const tokens = TOKENS.flatMap(sheet => rulesOf(read(sheet))[0].declarations).filter(
    declaration => declaration.startsWith('--') && used.includes(`var(${declaration.split(':')[0]}`),
  );
  const rules = [{ selectors: [scope], declarations: tokens }, ...needed];
  return `\n${written(rules, 'light')}\n@media (prefers-color-scheme: dark) {\n${written(rules, 'dark')}\n}`;
}

/** Rules without those within at-rules other than layers. */
function rulesOf(sheet: string): Rule[] {
  const plain = sheet.replaceAll(/\/\*.*?\*\//gs, '');
  const rules: Rule[] = [];
  let skipped = 0;
  for (const [, head, end] of plain.matchAll(/(?<![^{}])([^{}]*)([{}])/g)) {
    const text = head.trim().replaceAll(/\s+/g, ' ');
    if (end === '{') {
      if (skipped > 0 || /^@(?!layer)/.test(text)) skipped++;
      else if (!text.startsWith('@')) rules.push({ selectors: selectorsOf(text), declarations: [] });
    } else if (skipped > 0) skipped--;
    else if (text !== '') {
      const { selectors } = rules.pop()!;
      rules.push({ selectors, declarations: text.split(/;\s*/).filter(part => part !== '') });
    }
  }
  return rules;
}

/** @returns true where the markup has all classes, elements and attributes that a selector names */
function isKnown(selector: string, present: ReadonlySet<string>): boolean {
  const plain = selector
    .replaceAll(/:not\([^()]*\)/g, '')
    .replaceAll(/:has\(([^()]*)\)/g, ' $1')
    .replaceAll(/\[([\w-]+)(?:[^\w\-[\]][^[\]]*)?\]/g, '[$1 ');
  const names = plain.match(/[.[]?[a-z][\w-]*/gi) ?? [];
  return !plain.includes(':') && !plain.includes('*') && names.every(name => present.has(name));
}

/** All declarations in the light scheme, in the dark one those that differ. */
function written(rules: readonly Rule[], scheme: 'light' | 'dark'): string {
  return rules
    .flatMap(({ selectors, declarations }) => {
      const own =
        scheme === 'light' ? declarations : declarations.filter(text => text.includes('light-dark('));
      const body = own.map(text =>
        text.replaceAll(/light-dark\(([^,]+), ([^)]+)\)/g, scheme === 'light' ? '$1' : '$2'),
      );
      return body.length === 0 ? [] : [`${selectors.join(', ')} { ${body.join('; ')} }`];
    })
    .join('\n');
}

function read(path: string): string {
  return readFileSync(new URL(path, WEB), 'utf8');
}

/** Selectors of a rule, with each choice of an `:is()` on its own; commas within other parentheses separate nothing. */
function selectorsOf(head: string): string[] {
  const all = (head.match(/(?:\([^()]*\)|[^,()])+/g) ?? []).map(selector => selector.trim());
  return all.flatMap(selector => {
    const [whole, choices] = /:(?:is|where)\(([^()]*)\)/.exec(selector) ?? [];
    return whole === undefined
      ? [selector]
      : choices!.split(',').flatMap(name => selectorsOf(selector.replace(whole, name.trim())));
  });
}
