import { PROBLEMS } from '../../env-server/problems.ts';
import type { Contract, Route } from './contract.ts';
import type { RestRequest } from './request.ts';
import type { Answer } from './wire.ts';

/** Holds what a server answers against its contract. Complaints are texts; none means that all is as it should be. */

const PROBLEM_TYPE = 'application/problem+json';
const SERVER_FAULT = 500;
const CLIENT_FAULT = 400;
const NO_CONTENT = 204;
/** A frame of a stack, a path of the machine. */
const INNARDS = /\bat [^\n"]*\.[cm]?[jt]s:\d+|node:internal|node_modules/;
/** Codes that a frame or batch item may always be answered with. */
const OF_FRAMES = new Set(['bad_json', 'invalid_request', 'too_many_requests', 'forbidden', 'draining']);
/** Statuses whose problems say when to come again. */
const WITH_RETRY_AFTER = new Set([429, 503]);

export interface Problem {
  readonly status: number;
  readonly code: string;
  readonly retry_after_s?: number;
}

const typeOf = ({ headers }: Answer): string => (headers['content-type'] ?? '').split(';')[0];

/** @param codes that are documented; undefined where any code may come but the server's own failure */
function ofProblem(
  contract: Contract,
  value: unknown,
  codes: ReadonlySet<string> | undefined,
): string | undefined {
  const unfit = contract.checkComponent('Problem')(value);
  if (unfit) return `its problem does not fit the schema: ${unfit}`;
  const { code, status, retry_after_s } = value as Problem;
  if (code === 'internal') return 'the server failed: internal';
  if (codes && !codes.has(code)) return `the code ${code} is not documented`;
  if (PROBLEMS[code as keyof typeof PROBLEMS].status !== status) return `${code} came with status ${status}`;
  if (WITH_RETRY_AFTER.has(status) && retry_after_s === undefined)
    return `${code} says not when to come again`;
  return INNARDS.test(JSON.stringify(value)) ? 'it tells of the inside of the server' : undefined;
}

/** Of an answer that is an error. */
function ofError(
  contract: Contract,
  answer: Answer,
  codes: ReadonlySet<string> | undefined,
): string | undefined {
  if (typeOf(answer) !== PROBLEM_TYPE) return `status ${answer.status} came as "${typeOf(answer)}"`;
  const problem = JSON.parse(answer.body.toString('utf8'));
  const complaint = ofProblem(contract, problem, codes);
  if (complaint) return complaint;
  if (problem.status !== answer.status)
    return `its problem says ${problem.status}, its head ${answer.status}`;
  const { retry_after_s } = problem as Problem;
  const header = answer.headers['retry-after'];
  const expected = retry_after_s === undefined ? undefined : String(Math.ceil(retry_after_s));
  return header === expected ? undefined : `Retry-After is ${header}, its problem says ${expected}`;
}

/** Of an answer to a request that may be for any route, or none. */
export function ofAnyAnswer(contract: Contract, answer: Answer, hasBody: boolean): string | undefined {
  if (!hasBody) {
    return answer.status >= SERVER_FAULT ? `status ${answer.status}` : undefined;
  }
  return answer.status >= CLIENT_FAULT ? ofError(contract, answer, undefined) : undefined;
}

/** Of an answer from a known route. */
export function ofAnswer(
  contract: Contract,
  route: Route,
  request: RestRequest,
  answer: Answer,
): string | undefined {
  if (answer.status >= CLIENT_FAULT) return ofError(contract, answer, route.codes);
  if (answer.status !== route.status) return `status ${answer.status} is not documented`;
  const unfit = ofSuccess(contract, route, answer);
  if (unfit) return `its success does not fit: ${unfit}`;
  if (route.name === 'batch')
    return ofBatch(contract, itemsOf(request), JSON.parse(answer.body.toString('utf8')));
  if (request.body === undefined || route.body === undefined) return undefined;
  const wrong = contract.check(route.body)(JSON.parse(request.body.text === '' ? '{}' : request.body.text));
  return wrong && `a request was served that does not fit its schema: ${wrong}`;
}

const itemsOf = ({ body }: RestRequest): readonly unknown[] => JSON.parse(body?.text ?? '').items;

function ofSuccess(contract: Contract, route: Route, answer: Answer): string | undefined {
  if (answer.status === NO_CONTENT) return answer.body.length > 0 ? 'it has a body' : undefined;
  return contract.checkSuccess(route, typeOf(answer), answer.body.toString('utf8'));
}

/** Results of frames and items by operation, where the route answers with something else than JSON. */
const RESULTS: { readonly [operation: string]: string } = { render: 'Rendering', trajectory: 'Trajectory' };

type ReplyEnvelope = { readonly ok?: unknown; readonly result?: unknown; readonly error?: unknown };

/** Of the trace that a problem names, where its frame named one. */
function ofTrace(traceparent: unknown, error: unknown): string | undefined {
  if (typeof traceparent !== 'string') return undefined;
  const [, asked] = /^00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$/.exec(traceparent) ?? [];
  const { trace_id } = error as { trace_id?: unknown };
  return asked === undefined || trace_id === asked ? undefined : `its trace is ${trace_id}, not ${asked}`;
}

/** Of the reply to any frame or batch item. */
export function ofReply(contract: Contract, asked: unknown, reply: ReplyEnvelope): string | undefined {
  const { op, ...item } = (typeof asked === 'object' && asked !== null ? asked : {}) as {
    op?: unknown;
    items?: readonly unknown[];
    traceparent?: unknown;
  };
  const known = typeof op === 'string' && contract.items.has(op) ? contract.route(op) : undefined;
  if (reply.ok !== true) {
    const codes =
      op === 'batch'
        ? new Set([...OF_FRAMES, ...contract.route('batch').codes])
        : new Set([...OF_FRAMES, ...(known?.codes ?? [])]);
    return ofProblem(contract, reply.error, codes) ?? ofTrace(item.traceparent, reply.error);
  }
  const wrong = contract.check(contract.component('Frame'))({ id: 0, ...(asked as object) });
  if (wrong && op !== 'batch') return `what does not fit its schema was served: ${wrong}`;
  if (op === 'ping') return contract.checkComponent('Pong')(reply.result);
  if (op === 'batch') return ofBatch(contract, item.items ?? [], reply.result);
  if (!known) return `an unknown operation succeeded: ${String(op)}`;
  if (known.status === NO_CONTENT) return reply.result === null ? undefined : 'its result should be null';
  const schema =
    known.name in RESULTS ? contract.component(RESULTS[known.name]) : known.success['application/json'];
  const unfit = contract.check(schema)(reply.result);
  return unfit && `its result does not fit: ${unfit}`;
}

/** Of the results of a batch. */
export function ofBatch(contract: Contract, items: readonly unknown[], result: unknown): string | undefined {
  const unfit = contract.checkComponent('BatchResult')(result);
  if (unfit) return `the batch's result does not fit: ${unfit}`;
  const { results } = result as { results: readonly (ReplyEnvelope & { pending?: unknown })[] };
  if (results.length !== items.length) return `${items.length} items have ${results.length} results`;
  for (const [index, reply] of results.entries()) {
    const complaint = reply.pending === true ? undefined : ofReply(contract, items[index], reply);
    if (complaint) return `item ${index}: ${complaint}`;
  }
  return undefined;
}
