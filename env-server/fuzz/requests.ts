import fc, { type Arbitrary } from 'fast-check';
import type { Contract, Parameter, Route } from './contract.ts';
import {
  aFault,
  aKey,
  aSpoiler,
  type Bytes,
  type Fault,
  Fitting,
  hostile,
  nested,
  type Offer,
} from './values.ts';

/** A request over HTTP as any client would send it. */
export interface RestRequest {
  readonly door: 'rest';
  /** The operation it was made from; what answers may be another one, or none. */
  readonly operation: string;
  readonly method: string;
  /** With its query; marks stand for ids. */
  readonly path: string;
  readonly headers: { readonly [name: string]: string };
  readonly body: Bytes | undefined;
  /** Nothing of method, path, query and headers was spoilt. */
  readonly addressed: boolean;
}

/** Bytes on a connection of their own. */
export interface RawRequest {
  readonly door: 'raw';
  readonly what: string;
  readonly bytes: Bytes;
  /** The client hangs up when it has sent them. */
  readonly cut: boolean;
}

/** Frames sent at once on a socket of their own: values, or texts as they are. */
export interface SocketRequest {
  readonly door: 'socket';
  readonly protocol: 'ragen.json' | 'ragen.msgpack';
  readonly frames: readonly (
    | { readonly value: { readonly [key: string]: unknown } }
    | { readonly bytes: Bytes; readonly binary: boolean }
  )[];
}

export type Request = RestRequest | RawRequest | SocketRequest;

const MOST_FRAMES = 6;
const MOST_ITEMS = 8;
/** Operations that keep the server busy for long, or leave little to do, come seldom; those that others need, often. */
const WEIGHTS: { readonly [operation: string]: number } = {
  check: 1,
  replace: 4,
  register: 4,
  close: 40,
  create: 240,
  batch: 240,
};
const USUAL_WEIGHT = 120;
const weightOf = (operation: string): number => WEIGHTS[operation] ?? USUAL_WEIGHT;
/** Those whose effect must not go unseen, so that sessions can be counted. */
const OPENING = new Set(['create', 'clone']);

const ODD_SEGMENTS = [
  '%00',
  '%2e%2e',
  '..',
  '.',
  '%2F',
  '%252F',
  '%',
  '%zz',
  '%ff',
  '%c3%28',
  '%F0%9F%A7%8A',
  '',
  '%20',
  '__proto__',
  'constructor',
  'x'.repeat(129),
  'x'.repeat(5000),
  '%78'.repeat(90),
  ';a=b',
  '*',
  ':session_id',
  '{session_id}',
  '@session:0%00',
  '@session:0.s1',
  '-1',
  "'",
  '"',
];
const ODD_QUERIES = [
  '?',
  '?&&',
  '?=',
  '?x=1',
  '?limit=1&limit=2',
  '?limit=1e2',
  '?limit=0x10',
  '?limit=NaN',
  '?limit=',
  '?limit=99999999999999999999',
  '?cursor=-1',
  '?cursor=999999999999999',
  '?mode=png&mode=text',
  '?mode[]=png',
  '?mode=%00',
  '?mode=%zz',
  '?__proto__=1',
  '?constructor=1',
  '?session_id=x',
  '?env_id=%ff',
  `?search=${'x'.repeat(300)}`,
  `?search=${'%2B'.repeat(200)}`,
  '?search=(a%2B)%2B%24',
  '#fragment',
];
const ODD_HEADERS: readonly { readonly [name: string]: string }[] = [
  { 'idempotency-key': '' },
  { 'idempotency-key': 'x'.repeat(129) },
  { 'idempotency-key': '\x80\xff' },
  { 'idempotency-key': '__proto__' },
  { authorization: 'Bearer' },
  { authorization: 'Bearer \t' },
  { authorization: 'Bearer wrong' },
  { authorization: 'Basic dTpw' },
  { authorization: `Bearer ${'x'.repeat(8000)}` },
  { traceparent: '00-zz' },
  { traceparent: `00-${'0'.repeat(32)}-${'0'.repeat(16)}-01` },
  { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` },
  { accept: 'image/png' },
  { accept: '*/*;q=nothing' },
  { 'accept-encoding': 'br;q=9' },
  { 'content-encoding': 'gzip' },
  { 'x-http-method-override': 'DELETE' },
  { 'x-forwarded-for': "127.0.0.1, ' --" },
  { 'x-original-url': '/metrics' },
  { cookie: 'a=b; '.repeat(500) },
  { origin: 'https://elsewhere.example' },
  { range: 'bytes=0-1' },
  { 'if-none-match': '*' },
  { expect: '100-continue' },
  { host: 'elsewhere.example' },
  { host: 'a b' },
];
const ODD_TYPES = [
  '',
  'text/plain',
  'application/xml',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=x',
  'application/json; charset=utf-16',
  'application/json;;;',
  'application/jsonp',
  'application/msgpack',
  'json',
  'application/json, text/html',
  '\xf0',
];
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'SEARCH'];

interface Parts {
  readonly params: { readonly [name: string]: unknown };
  readonly query: { readonly [name: string]: unknown };
  readonly headers: { readonly [name: string]: unknown };
  readonly body: unknown;
}

const PLAIN_JSON = 'application/json';

/** Makes requests for everything the document names. */
export class Requests {
  readonly #contract: Contract;
  readonly #fitting: Fitting;
  readonly #tokens: readonly string[];

  /** @param tokens of which requests carry one; the first is the usual one */
  constructor(contract: Contract, offer: Offer, tokens: readonly string[]) {
    this.#contract = contract;
    this.#fitting = new Fitting(contract, offer);
    this.#tokens = tokens;
  }

  any(): Arbitrary<Request> {
    return fc.oneof(
      { weight: 14, arbitrary: this.rest() },
      { weight: 3, arbitrary: this.socket() },
      { weight: 2, arbitrary: this.raw() },
    );
  }

  rest(): Arbitrary<RestRequest> {
    return fc.oneof(
      ...this.#contract.routes.map(route => ({
        weight: weightOf(route.name),
        arbitrary: this.#toRoute(route),
      })),
    );
  }

  #toRoute(route: Route): Arbitrary<RestRequest> {
    const body = this.#body(route);
    const parts = fc.record({
      params: this.#parameters(route, 'path'),
      query: this.#parameters(route, 'query'),
      headers: this.#parameters(route, 'header'),
      body,
    });
    const plain = (parts: Parts) => this.#request(route, parts);
    const bodies = route.body === undefined ? parts.map(plain) : this.#spoiltBody(route, parts);
    return fc.oneof(
      { weight: 10, arbitrary: parts.map(plain) },
      { weight: 6, arbitrary: bodies },
      { weight: 3, arbitrary: parts.chain(parts => misaddressed(plain(parts))) },
    );
  }

  #body(route: Route): Arbitrary<unknown> {
    if (route.name === 'batch') return this.#batch();
    if (route.body === undefined) return fc.constant(undefined);
    const fitting = this.#fitting.value(route.body);
    return route.bodyRequired ? fitting : fc.option(fitting, { nil: undefined });
  }

  #parameters(route: Route, place: Parameter['in']): Arbitrary<{ [name: string]: unknown }> {
    const wanted = route.parameters.filter(parameter => parameter.in === place);
    const values = wanted.map(({ name, schema }): [string, Arbitrary<unknown>] => [
      name,
      place === 'header' ? aKey : this.#fitting.value(schema, name),
    ]);
    return fc.record(Object.fromEntries(values), {
      requiredKeys: wanted.filter(({ required }) => required).map(({ name }) => name),
    }) as Arbitrary<{ [name: string]: unknown }>;
  }

  #spoiltBody(route: Route, parts: Arbitrary<Parts>): Arbitrary<RestRequest> {
    return fc.oneof(
      fc
        .tuple(parts, fc.array(aFault, { minLength: 1, maxLength: 2 }))
        .map(([parts, faults]) => this.#request(route, { ...parts, body: spoilt(parts.body ?? {}, faults) })),
      fc.tuple(parts, aSpoiler).map(([parts, spoil]) => {
        const request = this.#request(route, { ...parts, body: parts.body ?? {} });
        return { ...request, body: spoil(request.body?.text ?? '') };
      }),
    );
  }

  #request(route: Route, { params, query, headers, body }: Parts): RestRequest {
    const path = route.path.replaceAll(/\{(\w+)\}/g, (_, name) => encoded(params[name]));
    const search = Object.entries(query)
      .map(([name, value]) => `${name}=${encoded(value)}`)
      .join('&');
    return {
      door: 'rest',
      operation: route.name,
      method: route.method,
      path: search === '' ? path : `${path}?${search}`,
      headers: {
        authorization: `Bearer ${this.#tokens[0]}`,
        ...(body !== undefined && { 'content-type': PLAIN_JSON }),
        ...(headers as { [name: string]: string }),
      },
      body: body === undefined ? undefined : { text: textOf(body), encoding: 'utf8' },
      addressed: true,
    };
  }

  #item(): Arbitrary<{ [key: string]: unknown }> {
    return fc.oneof(
      ...[...this.#contract.items].map(([name, schema]) => ({
        weight: weightOf(name),
        arbitrary: this.#fitting.value(schema) as Arbitrary<{ [key: string]: unknown }>,
      })),
    );
  }

  #batch(): Arbitrary<{ [key: string]: unknown }> {
    const items = fc.array(
      fc.oneof(
        { weight: 6, arbitrary: this.#item() },
        fc.tuple(this.#item(), aFault).map(([item, fault]) => fault(item)),
      ),
      { minLength: 1, maxLength: MOST_ITEMS },
    );
    return fc.record({ items, wait: fc.integer({ min: 1, max: MOST_ITEMS }) }, { requiredKeys: ['items'] });
  }

  /** Frames of every operation, batches and pings, in order and out of it. */
  socket(): Arbitrary<SocketRequest> {
    const frame = fc.oneof(
      { weight: 8, arbitrary: this.#item() },
      { weight: 2, arbitrary: this.#batch().map(batch => ({ op: 'batch', ...batch })) },
      { weight: 1, arbitrary: fc.constant({ op: 'ping' }) },
      { weight: 3, arbitrary: fc.tuple(this.#item(), aFault).map(([item, fault]) => fault(item)) },
    );
    const whole = fc
      .tuple(frame, fc.oneof({ weight: 8, arbitrary: fc.constant(undefined) }, hostile))
      .map(([frame, id]) => ({ frame, id }));
    const odd = fc
      .tuple(this.#item(), aSpoiler, fc.boolean())
      .map(([item, spoil, binary]) => ({ bytes: spoil(textOf({ id: -1, ...item })), binary }))
      // A text that is no UTF-8 ends its socket, as RFC 6455 wants it.
      .filter(({ bytes, binary }) => binary || bytes.encoding === 'utf8');
    return fc.record({
      door: fc.constant('socket' as const),
      protocol: fc.constantFrom('ragen.json' as const, 'ragen.json' as const, 'ragen.msgpack' as const),
      frames: fc
        .array(fc.oneof({ weight: 9, arbitrary: whole }, { weight: 1, arbitrary: odd }), {
          minLength: 1,
          maxLength: MOST_FRAMES,
        })
        .map(frames =>
          frames.map((frame, index) =>
            'bytes' in frame ? frame : { value: identified(frame.frame, frame.id, index) },
          ),
        ),
    });
  }

  /** What no client would send. */
  raw(): Arbitrary<RawRequest> {
    const quiet = this.#contract.routes.filter(({ name }) => !OPENING.has(name) && weightOf(name) > 4);
    const request = fc
      .oneof(...quiet.filter(({ name }) => name !== 'batch').map(route => this.#toRoute(route)))
      .filter(({ path, headers }) => isPlain(path) && Object.values(headers).every(isPlain));
    return fc
      .tuple(request, fc.constantFrom(...ABUSES), fc.nat(100_000))
      .map(([request, abuse, at]) => abuse(request, at));
  }
}

const isPlain = (text: string): boolean => /^[!-~ ]*$/.test(text);

function identified(frame: unknown, id: unknown, index: number): { [key: string]: unknown } {
  const body =
    typeof frame === 'object' && frame !== null && !Array.isArray(frame) ? frame : { value: frame };
  return { id: id ?? index, ...body };
}

const textOf = (value: unknown): string => JSON.stringify(value) ?? 'null';

const spoilt = (value: unknown, faults: readonly Fault[]): unknown =>
  faults.reduce((value, fault) => fault(value), value);

/** Marks are left as they are. */
function encoded(value: unknown): string {
  const text = String(value).toWellFormed();
  return encodeURIComponent(text).replaceAll('%40session%3A', '@session:');
}

/** The same request to another address, by another method or under other headers. */
function misaddressed(request: RestRequest): Arbitrary<RestRequest> {
  const wrong = { ...request, addressed: false };
  const [path] = request.path.split('?');
  const segments = path.split('/');
  return fc.oneof(
    fc.constantFrom(...METHODS).map(method => ({ ...wrong, method })),
    fc
      .tuple(fc.constantFrom(...ODD_SEGMENTS), fc.integer({ min: 1, max: segments.length }))
      .map(([odd, at]) => ({
        ...wrong,
        path: segments.with(Math.min(at, segments.length - 1), odd).join('/'),
      })),
    fc.constantFrom(...ODD_QUERIES).map(query => ({ ...wrong, path: path + query })),
    fc.constantFrom(...ODD_HEADERS).map(odd => ({ ...wrong, headers: { ...request.headers, ...odd } })),
    fc
      .constantFrom(...ODD_TYPES)
      .map(type => ({ ...wrong, headers: { ...request.headers, 'content-type': type } })),
    fc.constant({ ...wrong, path: `/${path}/` }),
    fc.constant({ ...wrong, body: request.body ?? { text: '{"x":1}', encoding: 'utf8' as const } }),
  );
}

type Abuse = (request: RestRequest, at: number) => RawRequest;

function rawText(
  { method, path, headers, body }: RestRequest,
  more: readonly string[] = [],
  length: number | undefined = undefined,
): string {
  const text = body?.text ?? '';
  const lines = [
    `${method} ${path} HTTP/1.1`,
    'Host: x',
    'Connection: close',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    ...(more.some(line => /^transfer-encoding/i.test(line))
      ? []
      : [`Content-Length: ${length ?? Buffer.byteLength(text)}`]),
    ...more,
  ];
  return `${lines.join('\r\n')}\r\n\r\n${text}`;
}

const raw = (what: string, text: string, cut = false): RawRequest => ({
  door: 'raw',
  what,
  bytes: { text, encoding: 'utf8' },
  cut,
});

const ABUSES: readonly Abuse[] = [
  (request, at) => {
    const text = rawText(request);
    return raw('hangs up amid', text.slice(0, at % text.length), true);
  },
  request => raw('announces more than it sends', rawText(request, [], 100_000), true),
  request => raw('sends more than it announces', `${rawText(request)}{"left":"over"}`),
  request => raw('announces a length below zero', rawText(request, [], -1)),
  request => raw('two lengths', rawText(request, ['Content-Length: 3'])),
  request => raw('a bad chunk', rawText(request, ['Transfer-Encoding: chunked'])),
  request => raw('an unknown coding', rawText(request, ['Transfer-Encoding: rot13'])),
  request =>
    raw(
      'length and chunks',
      rawText(request, ['Content-Length: 4', 'Transfer-Encoding: chunked']).replace(
        /\r\n\r\n.*/s,
        '\r\n\r\n0\r\n\r\n',
      ),
    ),
  request => raw('no host', rawText(request).replace('Host: x\r\n', '')),
  request => raw('two hosts', rawText(request, ['Host: y'])),
  request => raw('a large header', rawText(request, [`X-Large: ${'x'.repeat(100_000)}`])),
  request =>
    raw(
      'many headers',
      rawText(
        request,
        Array.from({ length: 3000 }, (_, i) => `X-${i}: 1`),
      ),
    ),
  request => raw('a header without a colon', rawText(request, ['Nonsense'])),
  request => raw('a header with a control character', rawText(request, ['X-A: \x01'])),
  request => raw('a header with a space in its name', rawText(request, ['X A: 1'])),
  request => raw('a folded header', rawText(request, ['X-A: 1\r\n 2'])),
  request => raw('HTTP/1.0', rawText(request).replace('HTTP/1.1', 'HTTP/1.0')),
  request => raw('HTTP/2.0', rawText(request).replace('HTTP/1.1', 'HTTP/2.0')),
  request => raw('HTTP/9.9', rawText(request).replace('HTTP/1.1', 'HTTP/9.9')),
  request => raw('no version', rawText(request).replace(' HTTP/1.1', '')),
  request => raw('no method', rawText(request).replace(/^\w+ /, '')),
  request => raw('an unknown method', rawText(request).replace(/^\w+/, 'FROBNICATE')),
  request => raw('a whole URL', rawText({ ...request, path: `http://x${request.path}` })),
  request => raw('a target that is no path', rawText({ ...request, path: 'x' })),
  request => raw('CONNECT', rawText({ ...request, method: 'CONNECT', path: 'x:80' })),
  request => raw('spaces in the path', rawText({ ...request, path: '/v1/ sessions' })),
  request => raw('letters beyond ASCII in the path', rawText({ ...request, path: '/v1/sessions/ü🧊' })),
  request => raw('a path of 70 kB', rawText({ ...request, path: `/v1/sessions/${'x'.repeat(70_000)}` })),
  request => raw('expects a 100', rawText(request, ['Expect: 100-continue'])),
  request => raw('expects something else', rawText(request, ['Expect: the-inquisition'])),
  request => raw('wants h2c', rawText(request, ['Upgrade: h2c', 'HTTP2-Settings: x'])),
  request =>
    raw(
      'an upgrade without a key',
      rawText({ ...request, method: 'GET', path: '/v1/ws', body: undefined }, UPGRADE),
    ),
  request =>
    raw(
      'an upgrade of an old version',
      rawText({ ...request, method: 'GET', path: '/v1/ws', body: undefined }, [
        ...UPGRADE,
        'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
        'Sec-WebSocket-Version: 1',
      ]),
    ),
  request => raw('an upgrade elsewhere', rawText({ ...request, body: undefined }, UPGRADE)),
  (_request, at) => raw('no HTTP', nested(at % 50)),
  (_request, at) => ({
    door: 'raw',
    what: 'no text',
    bytes: {
      text: String.fromCharCode(at % 256, 22, 3, 1, 0, at % 251, 255, 13, 10, 13, 10),
      encoding: 'latin1',
    },
    cut: false,
  }),
];

const UPGRADE = ['Connection: Upgrade', 'Upgrade: websocket'];
