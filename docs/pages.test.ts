import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { anchorOf } from './generator/markdown.ts';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const LINK = /\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)|(?:src|srcset|href)="([^"]+)"/g;
const MAX_WIDTH = 120;
const EXTERNAL = /^[a-z][a-z+.-]*:/i;

/** The page without what is shown as code. */
const proseOf = (page: string): string =>
  page.replaceAll(/^( *)(```|~~~)[\s\S]*?^\1\2 *$/gm, '').replaceAll(/`[^`\n]*`/g, '');

/** The anchors that GitHub gives the headings of a page; a repeated one gets a number. */
function anchorsOf(page: string): ReadonlySet<string> {
  const anchors = new Set<string>();
  for (const [, heading] of page.replaceAll(/^( *)```[\s\S]*?^\1``` *$/gm, '').matchAll(/^#{1,6} +(.+)$/gm)) {
    const slug = anchorOf(heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1'));
    let anchor = slug;
    for (let n = 1; anchors.has(anchor); n++) anchor = `${slug}-${n}`;
    anchors.add(anchor);
  }
  return anchors;
}

/** Errors in the links of a page. @param path below the root of the repository */
function brokenLinks(path: string, page: string): string[] {
  const broken: string[] = [];
  for (const [, inline, attribute] of proseOf(page).matchAll(LINK)) {
    const link = inline ?? attribute;
    if (EXTERNAL.test(link)) continue;
    const [file, anchor] = decodeURI(link).split('#');
    const target = file === '' ? join(ROOT, path) : resolve(ROOT, dirname(path), file);
    if (file !== '' && (relative(ROOT, target).startsWith('..') || !existsSync(target))) {
      broken.push(`${path}: ${link} names no file`);
    } else if (anchor !== undefined && file !== '' && !statSync(target).isFile()) {
      broken.push(`${path}: ${link} names a heading of a folder`);
    } else if (anchor !== undefined) {
      const text = file === '' ? page : readFileSync(target, 'utf8');
      if (!anchorsOf(text).has(anchor)) broken.push(`${path}: ${link} names no heading`);
    }
  }
  return broken;
}

/** Lines of prose that a space could break before the limit; links and code in a line stay whole. */
function wideLines(path: string, page: string): string[] {
  const prose = page.replaceAll(/^( *)(```|~~~)[\s\S]*?^\1\2 *$/gm, fence => fence.replaceAll(/[^\n]/g, ''));
  return prose.split('\n').flatMap((line, index) => {
    if (line.length <= MAX_WIDTH || /^\s*[|#<]/.test(line)) return [];
    const words = line.replaceAll(/\[[^\]]*\]\([^)]*\)|`[^`]+`/g, whole => whole.replaceAll(' ', '_'));
    const marker = /^ *(?:> |- |\d+\. )?/.exec(words)?.[0].length ?? 0;
    const space = words.indexOf(' ', marker);
    return space >= 0 && space <= MAX_WIDTH ? [`${path}:${index + 1} has ${line.length} columns`] : [];
  });
}

/** Every page of the repository by its path. */
function readPages(): Map<string, string> {
  const list = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '*.md'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  const paths = list.split('\n').filter(path => path !== '' && existsSync(join(ROOT, path)));
  return new Map(paths.map(path => [path, readFileSync(join(ROOT, path), 'utf8')]));
}

const pages = readPages();

t.test('every relative link and anchor in the repository leads somewhere', async t => {
  t.ok(pages.size > 40);
  t.same(
    [...pages].flatMap(([path, page]) => brokenLinks(path, page)),
    [],
  );
});

t.test('prose in Markdown wraps at 120 columns', async t => {
  t.same(
    [...pages].flatMap(([path, page]) => wideLines(path, page)),
    [],
  );
});

/** A record of the past, with files that may be gone. */
const HISTORY = 'docs/log.md';
/** Pages with files that the reader writes. */
const TO_WRITE = /add-a(?:n-environment|-part)\.md$/;
const FILE =
  /(?<![\w/.-])(?:bench|bin|configs|docker|docs|env-server|install|openapi|shared|site|test|trainer)\/[\w./-]+\.(?:ts|js|py|sh|yaml|json)\b/g;

t.test('files and scripts of the repository that pages name exist', async t => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  let count = 0;
  for (const [path, page] of pages) {
    if (path === HISTORY) continue;
    const files = TO_WRITE.test(path) ? [] : [...page.matchAll(FILE)].map(([file]) => file);
    const missing = files.filter(file => !existsSync(join(ROOT, file)));
    const runs = [...page.matchAll(/npm run (?:-s |--silent )?([a-z][\w:-]*\w)/g)].map(
      ([, script]) => script,
    );
    const unknown = runs.filter(script => !(script in scripts) && script !== 'bench');
    t.same([...missing, ...unknown], [], path);
    count += files.length + runs.length;
  }
  t.ok(count > 300, `${count} names`);
});

t.test('wide lines are found; tables, headings, code and long links are passed over', async t => {
  const long = 'x'.repeat(MAX_WIDTH);
  t.same(wideLines('a.md', `fine\n\na ${long}\n- b ${long}\n`), [
    'a.md:3 has 122 columns',
    'a.md:4 has 124 columns',
  ]);
  const whole = [`| a ${long} |`, `# a ${long}`, `- [a b](${long})`, `\`a ${long}\` b`, long];
  t.same(wideLines('a.md', `${whole.join('\n')}\n\n\`\`\`sh\na ${long}\n\`\`\`\n`), []);
});

t.test('broken links are found, code and other hosts are passed over', async t => {
  const page =
    '# A `b` c\n\n[x](#a-b-c) [x](#nothing) [x](missing.md) [x](..#a-b-c) [x](https://a.b/c) `[x](code.md)`\n';
  t.same(brokenLinks('docs/page.md', page), [
    'docs/page.md: #nothing names no heading',
    'docs/page.md: missing.md names no file',
    'docs/page.md: ..#a-b-c names a heading of a folder',
  ]);
});
