import fc, { type Arbitrary } from 'fast-check';
import type { RestRequest } from './request.ts';

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

/** The same request to another address, by another method or under other headers. */
export function misaddressed(request: RestRequest): Arbitrary<RestRequest> {
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
