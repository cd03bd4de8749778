import { shellWord } from '../../../shared/shell-word.ts';

/** A request as the page sends it. */
export interface CurlRequest {
  readonly method: string;
  readonly url: string;
  readonly body?: string;
  /** True if it needs the token. */
  readonly authorized?: boolean;
  /** Headers besides those of token and body. */
  readonly headers?: { readonly [name: string]: string };
}

/** Languages for showing requests. */
export const LANGUAGES = ['curl', 'Python', 'TypeScript'] as const;
export type Language = (typeof LANGUAGES)[number];

const quoted = (text: string): string => JSON.stringify(text);

/** Lines that requests need before them. */
export function preamble(language: Language, origin: string, authorized: boolean): string {
  switch (language) {
    case 'curl':
      return '';
    case 'Python':
      return [
        ...(authorized ? ['import os'] : []),
        'import requests  # pip install requests',
        '',
        'api = requests.Session()',
        ...(authorized ? ['api.headers["authorization"] = f"Bearer {os.environ[\'RAGEN_TOKEN\']}"'] : []),
        `url = ${quoted(origin)}`,
      ].join('\n');
    case 'TypeScript':
      return [
        `const url = ${quoted(origin)};`,
        'async function ask(method: string, path: string, body?: unknown) {',
        '  const response = await fetch(url + path, {',
        '    method,',
        authorized
          ? "    headers: { 'content-type': 'application/json', authorization: 'Bearer ' + process.env.RAGEN_TOKEN },"
          : "    headers: { 'content-type': 'application/json' },",
        '    body: JSON.stringify(body),',
        '  });',
        '  const text = await response.text();',
        "  return text === '' ? undefined : JSON.parse(text);",
        '}',
      ].join('\n');
  }
}

/** One request, after the preamble of its language. */
export function codeLine(language: Language, request: CurlRequest, origin: string): string {
  const { method, url, body } = request;
  const path = url.startsWith(origin) ? url.slice(origin.length) : url;
  switch (language) {
    case 'curl':
      return curlLine(request);
    case 'Python': {
      const data = body === undefined ? '' : `, json=${pythonValue(JSON.parse(body))}`;
      return `api.${method.toLowerCase()}(url + ${quoted(path)}${data})`;
    }
    case 'TypeScript':
      return `await ask(${quoted(method)}, ${quoted(path)}${body === undefined ? '' : `, ${body}`});`;
  }
}

/** JSON as Python writes it. */
function pythonValue(value: unknown): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (Array.isArray(value)) return `[${value.map(pythonValue).join(', ')}]`;
  if (typeof value === 'object') {
    return `{${Object.entries(value as object)
      .map(([key, member]) => `${quoted(key)}: ${pythonValue(member)}`)
      .join(', ')}}`;
  }
  return JSON.stringify(value);
}

/** The equivalent command, one part a line; the token comes from the variable `RAGEN_TOKEN` and is never in the text. */
export function curlLine({ method, url, body, authorized, headers = {} }: CurlRequest): string {
  const first = ['curl', '-s'];
  if (method !== (body === undefined ? 'GET' : 'POST')) first.push('-X', method);
  const lines = [[...first, shellWord(url)].join(' ')];
  if (authorized) lines.push('-H "authorization: Bearer $RAGEN_TOKEN"');
  for (const header of Object.entries(headers)) lines.push(`-H ${shellWord(header.join(': '))}`);
  if (body !== undefined)
    lines.push(`-H ${shellWord('content-type: application/json')}`, `-d ${shellWord(body)}`);
  return lines.join(' \\\n  ');
}
