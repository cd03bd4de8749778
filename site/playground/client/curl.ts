import { shellWord } from '../../../shared/shell-word.ts';

/** A request as the page sends it. */
export interface CurlRequest {
  readonly method: string;
  readonly url: string;
  readonly body?: string;
  /** True if it needs the token. */
  readonly authorized?: boolean;
}

/** The command that does the same, a part a line; the token comes from the variable `RAGEN_TOKEN` and is never in the text. */
export function curlLine({ method, url, body, authorized }: CurlRequest): string {
  const first = ['curl', '-s'];
  if (method !== (body === undefined ? 'GET' : 'POST')) first.push('-X', method);
  const lines = [[...first, shellWord(url)].join(' ')];
  if (authorized) lines.push('-H "authorization: Bearer $RAGEN_TOKEN"');
  if (body !== undefined)
    lines.push(`-H ${shellWord('content-type: application/json')}`, `-d ${shellWord(body)}`);
  return lines.join(' \\\n  ');
}
