import fc, { type Arbitrary } from 'fast-check';
import { ABUSES } from './abuses.ts';
import type { Contract, Parameter, Route } from './contract.ts';
import { misaddressed } from './misaddressed.ts';
import { type RawRequest, type Request, type RestRequest, type SocketRequest, SPOILT_ID } from './request.ts';
import { aFault, aKey, aSpoiler, aTraceparent, type Fault, Fitting, hostile, type Offer } from './values.ts';

const MAX_FRAMES = 6;
const MAX_ITEMS = 8;
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

interface RequestParts {
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
    const plain = (parts: RequestParts) => this.#request(route, parts);
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

  #spoiltBody(route: Route, parts: Arbitrary<RequestParts>): Arbitrary<RestRequest> {
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

  #request(route: Route, { params, query, headers, body }: RequestParts): RestRequest {
    const path = route.path.replaceAll(/\{(\w+)\}/g, (_, name) => encoded(params[name]));
    const search = Object.entries(query)
      .map(([name, value]) => `${name}=${encoded(value)}`)
      .join('&');
    return {
      transport: 'rest',
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
      { minLength: 1, maxLength: MAX_ITEMS },
    );
    return fc.record({ items, wait: fc.integer({ min: 1, max: MAX_ITEMS }) }, { requiredKeys: ['items'] });
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
      .tuple(frame, usuallyNot(hostile), usuallyNot(fc.oneof(aTraceparent, hostile)))
      .map(([frame, id, traceparent]) => ({ frame, id, traceparent }));
    const odd = fc
      .tuple(this.#item(), aSpoiler, fc.boolean())
      .map(([item, spoil, binary]) => ({ bytes: spoil(textOf({ id: SPOILT_ID, ...item })), binary }))
      // A text that is no UTF-8 ends its socket, as RFC 6455 wants it.
      .filter(({ bytes, binary }) => binary || bytes.encoding === 'utf8');
    return fc.record({
      transport: fc.constant('socket' as const),
      protocol: fc.constantFrom('ragen.json' as const, 'ragen.json' as const, 'ragen.msgpack' as const),
      frames: fc
        .array(fc.oneof({ weight: 9, arbitrary: whole }, { weight: 1, arbitrary: odd }), {
          minLength: 1,
          maxLength: MAX_FRAMES,
        })
        .map(frames =>
          frames.map((frame, index) =>
            'bytes' in frame
              ? frame
              : { value: identified(frame.frame, frame.id ?? index, frame.traceparent) },
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
      .map(([request, abuse, at]) => ({ transport: 'raw', request, abuse, at }));
  }
}

const isPlain = (text: string): boolean => /^[!-~ ]*$/.test(text);

const usuallyNot = <T>(arbitrary: Arbitrary<T>): Arbitrary<T | undefined> =>
  fc.oneof({ weight: 8, arbitrary: fc.constant(undefined) }, arbitrary);

function identified(frame: unknown, id: unknown, traceparent: unknown): { [key: string]: unknown } {
  const body =
    typeof frame === 'object' && frame !== null && !Array.isArray(frame) ? frame : { value: frame };
  return { id, ...(traceparent !== undefined && { traceparent }), ...body };
}

const textOf = (value: unknown): string => JSON.stringify(value) ?? 'null';

const spoilt = (value: unknown, faults: readonly Fault[]): unknown =>
  faults.reduce((value, fault) => fault(value), value);

/** Marks are left as they are. */
function encoded(value: unknown): string {
  const text = String(value).toWellFormed();
  return encodeURIComponent(text).replaceAll('%40session%3A', '@session:');
}
