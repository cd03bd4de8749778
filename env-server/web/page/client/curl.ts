/** A request as the page sends it. */
export interface CurlRequest {
  readonly method: string;
  readonly url: string;
  readonly body?: string;
  /** Whether it needs the token. */
  readonly authorized?: boolean;
}

const PLAIN = /^[\w@%+=:,./-]+$/;

/** A word as a POSIX shell takes it. */
export function quote(word: string): string {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** The command that does the same, a part a line; the token stands in the variable `RAGEN_TOKEN`, never in the text. */
export function curlLine({ method, url, body, authorized }: CurlRequest): string {
  const first = ['curl', '-s'];
  if (method !== (body === undefined ? 'GET' : 'POST')) first.push('-X', method);
  const lines = [[...first, quote(url)].join(' ')];
  if (authorized) lines.push('-H "authorization: Bearer $RAGEN_TOKEN"');
  if (body !== undefined) lines.push(`-H ${quote('content-type: application/json')}`, `-d ${quote(body)}`);
  return lines.join(' \\\n  ');
}
