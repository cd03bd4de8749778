import { InvalidAnswer } from '../answer.ts';

/** Longest that is repeated of what a service says. */
const MAX_SHOWN_LENGTH = 300;

/** Result of an event stream of the Open Reward Standard. */
interface StreamedResult {
  /** Data of `task_id`. */
  readonly taskId: string | undefined;
  /** Data of `chunk` and `end`, joined. */
  readonly result: string;
}

/**
 * Reads server-sent events that have all come.
 * @throws InvalidAnswer for the event `error`, and where the end is missing
 */
export function readEvents(text: string): StreamedResult {
  let taskId: string | undefined;
  let result = '';
  for (const { name, data } of eventsOf(text)) {
    if (name === 'task_id') taskId = data.trim();
    else if (name === 'chunk') result += data;
    else if (name === 'end') return { taskId, result: result + data };
    else if (name === 'error') throw new InvalidAnswer(`it failed: ${data.slice(0, MAX_SHOWN_LENGTH)}`);
  }
  throw new InvalidAnswer('the stream of events has no end');
}

/** Events after the HTML standard, section 9.2.6; comments and unknown fields are skipped. */
function* eventsOf(text: string): Generator<{ name: string; data: string }> {
  let name = 'message';
  let data: string[] = [];
  for (const line of text.split(/\r\n|\n|\r/)) {
    if (line === '') {
      if (data.length > 0) yield { name, data: data.join('\n') };
      name = 'message';
      data = [];
      continue;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') name = value;
    else if (field === 'data') data.push(value);
  }
}
