import { readFileSync } from 'node:fs';
import { analyse } from 'scslre';
import t from 'tap';
import ts from 'typescript';
import { sourceFiles } from './import-graph.test-data.ts';

interface Pattern {
  readonly source: string;
  readonly flags: string;
  /** File and line. */
  readonly place: string;
}

/** Sample for a part of a pattern that is known only at run time: a name or a number. */
const UNKNOWN = '1';

/**
 * The regular expressions of a TypeScript file: literals, the constant texts given to `RegExp`, and the `pattern`s of
 * schemas. Constants of the same file are filled in.
 */
function patternsOf(file: string, text: string): Pattern[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const constants = new Map<string, ts.Expression>();
  const found: Pattern[] = [];

  const textOf = (node: ts.Expression): string | undefined => {
    if (ts.isStringLiteralLike(node)) return node.text;
    if (ts.isIdentifier(node)) {
      const constant = constants.get(node.text);
      return constant && textOf(constant);
    }
    if (ts.isTaggedTemplateExpression(node) && node.tag.getText() === 'String.raw') {
      const { template } = node;
      return ts.isNoSubstitutionTemplateLiteral(template) ? template.rawText : filled(template, 'rawText');
    }
    return ts.isTemplateExpression(node) ? filled(node, 'text') : undefined;
  };
  const filled = ({ head, templateSpans }: ts.TemplateExpression, form: 'text' | 'rawText'): string =>
    templateSpans.reduce(
      (begun, { expression, literal }) => begun + (textOf(expression) ?? UNKNOWN) + literal[form],
      head[form] ?? '',
    );
  const add = (node: ts.Node, pattern: string | undefined, flags: string): void => {
    if (pattern === undefined) return;
    const { line } = source.getLineAndCharacterOfPosition(node.getStart());
    found.push({ source: pattern, flags, place: `${file}:${line + 1}` });
  };
  const collectConstants = (node: ts.Node): void => {
    if (ts.isVariableDeclaration(node) && ts.isIdentifier(node.name) && node.initializer)
      constants.set(node.name.text, node.initializer);
    ts.forEachChild(node, collectConstants);
  };
  const visit = (node: ts.Node): void => {
    if (ts.isRegularExpressionLiteral(node)) {
      const end = node.text.lastIndexOf('/');
      add(node, node.text.slice(1, end), node.text.slice(end + 1));
    } else if (
      (ts.isNewExpression(node) || ts.isCallExpression(node)) &&
      node.expression.getText() === 'RegExp' &&
      node.arguments?.length
    ) {
      const [pattern, flags] = node.arguments;
      add(node, textOf(pattern), (flags && textOf(flags)) ?? '');
    } else if (ts.isPropertyAssignment(node) && node.name.getText() === 'pattern') {
      add(node, textOf(node.initializer), 'u');
    }
    ts.forEachChild(node, visit);
  };
  collectConstants(source);
  visit(source);
  return found;
}

/** Patterns that take more than linear time on some text, with the characters that do it. */
function superlinear(patterns: readonly Pattern[]): string[] {
  return patterns.flatMap(({ source, flags, place }) => {
    const { reports } = analyse({ source, flags });
    const why = reports.map(({ type, character }) => `${type} of /${character.literal.source}/`);
    return why.length > 0 ? [`${place} /${source}/${flags}: ${why.join(', ')}`] : [];
  });
}

t.test('no regular expression of the product takes more than linear time', async t => {
  const files = sourceFiles().filter(file => !/\.(?:test|test-data|d)\.ts$/.test(file));
  const patterns = files.flatMap(file =>
    patternsOf(file, readFileSync(new URL(`../${file}`, import.meta.url), 'utf8')),
  );
  t.ok(patterns.length > 300, `${patterns.length} patterns`);
  t.same(superlinear(patterns), []);
});

t.test('ambiguous patterns are found in every form', async t => {
  /** `«name»` marks a value that is filled into a template. */
  const judged = (text: string) =>
    superlinear(patternsOf('a.ts', text.replaceAll(/«(\w+)»/g, '$${$1}'))).length;
  t.equal(judged('const a = /^\\d*\\.?\\d+$/;'), 1, 'two loops over the same characters');
  t.equal(judged('text.replace(/\\s+$/, "");'), 1, 'a loop that begins anywhere');
  t.equal(judged('const S = "\\s*"; new RegExp(`^a«S»,?«S»$`);'), 1, 'constants are filled in');
  t.equal(judged('const S = String.raw`(a+)+`; RegExp(String.raw`^«S»$`);'), 1, 'raw constants');
  t.equal(judged('Type.String({ pattern: "^(a+)*$" });'), 1, 'a schema');
  t.equal(judged('new RegExp(`^«name»\\d+$`);'), 0, 'a value that is known at run time counts as a name');
});
