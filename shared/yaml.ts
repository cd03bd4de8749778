import { type Document, type LineCounter, parse, parseDocument } from 'yaml';

/** Reads in time linear in the length: without a comparison of each key with all others. The last of equal keys counts. */
const LINEAR = { uniqueKeys: false, logLevel: 'error' } as const;

/**
 * The value of YAML by others: no aliases, which can grow without end.
 * @throws Error
 */
export const parseYaml = (text: string): unknown => parse(text, { ...LINEAR, maxAliasCount: 0 });

/** The nodes of YAML with their positions; its errors are in the document. */
export const parseYamlNodes = (text: string, lineCounter: LineCounter): Document =>
  parseDocument(text, { ...LINEAR, lineCounter });
