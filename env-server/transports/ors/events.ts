import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { FastifyReply } from 'fastify';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { isReportedByStatus } from './tool-calls.ts';

/** Longest data of one event, in UTF-16 units: clients read lines of a bounded length. */
const CHUNK_LENGTH = 4096;
/** A result that takes longer is announced with its id before it is there. */
const AT_ONCE_MS = 50;
/** Clients give a silent stream up after 30 seconds. */
const PING_MS = 10_000;
const PING = ': ping\n\n';
const WHITE_SPACE = /\s/;
const LOW_SURROGATE = /[\uDC00-\uDFFF]/;

/** One event of the stream. Data has no line breaks. */
export const event = (name: 'task_id' | 'chunk' | 'end' | 'error', data: string): string =>
  `event: ${name}\ndata: ${data}\n\n`;

/** Lets a reply leave when its contents are kept (see `SessionManager.deliver`). */
export type Deliver = (reply: () => void) => void;

/** Sends events that are there already. */
export function sendEvents(reply: FastifyReply, ...events: readonly string[]): FastifyReply {
  return streamed(reply).send(events.join(''));
}

/**
 * Answers with what a call leads to: the id of the call, then its result in parts. A result that is long in coming is
 * waited for with signs of life; a client that hangs up meanwhile asks again under the id.
 * @throws what the call throws, where the status of the reply reports it
 */
export async function sendResult(
  reply: FastifyReply,
  id: string,
  result: Promise<object>,
  { problemHandler, deliver }: { problemHandler: ProblemHandler; deliver: Deliver },
): Promise<FastifyReply> {
  const begun = event('task_id', id);
  const text = result.then(
    output => resultEvents(JSON.stringify(output)).join(''),
    error => event('error', oneLine(problemHandler.document(error).detail)),
  );
  const first = await Promise.race([
    result.then(
      () => undefined,
      (error: unknown) => ({ error }),
    ),
    delay(AT_ONCE_MS, 'later' as const),
  ]);
  if (first === 'later') return streamed(reply).send(Readable.from(waiting(begun, text, deliver)));
  if (first && isReportedByStatus(first.error)) throw first.error;
  return sendEvents(reply, begun, await text);
}

async function* waiting(begun: string, text: Promise<string>, deliver: Deliver): AsyncGenerator<string> {
  yield begun;
  const clock = new AbortController();
  try {
    for (;;) {
      const ping = delay(PING_MS, PING, { signal: clock.signal });
      const next = await Promise.race([text, ping]);
      if (next !== PING) break;
      yield PING;
    }
  } finally {
    clock.abort();
  }
  await new Promise<void>(resolve => deliver(resolve));
  yield await text;
}

/** JSON without line breaks as events: parts of it, the last one as the end. */
export function resultEvents(json: string): string[] {
  const events: string[] = [];
  let start = 0;
  while (json.length - start > CHUNK_LENGTH) {
    const isHalf = LOW_SURROGATE.test(json[start + CHUNK_LENGTH]);
    const stop = start + CHUNK_LENGTH - (isHalf ? 1 : 0);
    events.push(event('chunk', escapedStart(json.slice(start, stop))));
    start = stop;
  }
  events.push(event('end', escapedStart(json.slice(start))));
  return events;
}

/** Clients cut off white space at the beginning of data, so that is written as an escape; it only occurs in texts. */
function escapedStart(part: string): string {
  if (!WHITE_SPACE.test(part[0])) return part;
  return `\\u${part.charCodeAt(0).toString(16).padStart(4, '0')}${part.slice(1)}`;
}

const oneLine = (text: string): string => text.replaceAll(/\s+/g, ' ');

function streamed(reply: FastifyReply): FastifyReply {
  return reply.headers({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
    'x-accel-buffering': 'no',
  });
}
