const MARK = /@session:(\d+)/g;
const SESSION_ID = /"session_id":"([\w-]{1,64})"/g;
/** How many sessions a request asks for; quotes may be escaped, in a text within a text. */
const COUNT = /"count\\*":\s*([\d.e+]+)/gi;
/** What a reply says of work that goes on without it. */
const UNFINISHED = /"pending":true|"step_timeout"/g;
/** Newest sessions that marks stand for. */
const IN_PLAY = 8;
const NOBODY = 'nobody';

/** Sessions a client was told of, and what stands for them in requests made beforehand. */
export class SessionsInPlay {
  /** All of them. */
  readonly made = new Set<string>();
  readonly #newest: string[] = [];
  /** How many may be open without a reply that told of them: it was not waited for. */
  untold = 0;

  /** Takes note of the ids in the reply to a request. */
  learn(reply: string, request: unknown): void {
    for (const [, id] of reply.matchAll(SESSION_ID)) {
      if (this.made.has(id)) continue;
      this.made.add(id);
      this.#newest.push(id);
      if (this.#newest.length > IN_PLAY) this.#newest.shift();
    }
    const unfinished = reply.match(UNFINISHED)?.length ?? 0;
    if (unfinished === 0) return;
    this.untold += unfinished;
    for (const [, count] of JSON.stringify(request).matchAll(COUNT)) this.untold += Number(count);
  }

  /** Puts ids in place of the marks in a request. */
  fill<T>(request: T): T {
    return mapTexts(request, text =>
      text.replaceAll(MARK, (_, index) => this.#newest[Number(index) % this.#newest.length] ?? NOBODY),
    ) as T;
  }
}

function mapTexts(value: unknown, map: (text: string) => string): unknown {
  if (typeof value === 'string') return map(value);
  if (Array.isArray(value)) return value.map(item => mapTexts(item, map));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, mapTexts(inner, map)]));
}
