import { readFileSync } from 'node:fs';

const WEB = new URL('../../site/', import.meta.url);
const SHEETS = ['grids', 'tiles', 'panels', 'shop'].map(name => `boards/styles/${name}.css`);
const TOKENS = 'styles/tokens.css';

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
  const classes = new Set(
    [...markup.matchAll(/class="([^"]*)"/g)].flatMap(([, names]) => names.split(/\s+/)),
  );
  const needed = SHEETS.flatMap(sheet => rulesOf(read(sheet))).flatMap(({ selectors, declarations }) => {
    const matching = selectors.filter(selector => isKnown(selector, classes));
    const lasting = declarations.filter(declaration => !/^(transition|animation|cursor)\b/.test(declaration));
    return matching.length > 0 && lasting.length > 0 ? [{ selectors: matching, declarations: lasting }] : [];
  });
  const used = JSON.stringify(needed);
  const tokens = rulesOf(read(TOKENS))[0].declarations.filter(
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

function isKnown(selector: string, classes: ReadonlySet<string>): boolean {
  const names = [...selector.replaceAll(/:(is|has|not)\([^)]*\)/g, '').matchAll(/\.([\w-]+)/g)];
  return names.length > 0 && names.every(([, name]) => classes.has(name)) && !/:(hover|focus)/.test(selector);
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

/** Selectors of a rule; commas within parentheses separate nothing. */
function selectorsOf(head: string): string[] {
  return (head.match(/(?:\([^()]*\)|[^,()])+/g) ?? []).map(selector => selector.trim());
}
