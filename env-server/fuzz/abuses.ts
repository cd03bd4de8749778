import type { Abuse, Abused, RestRequest } from './request.ts';
import { nested } from './values.ts';

const UPGRADE = ['Connection: Upgrade', 'Upgrade: websocket'];

function rawText(
  { method, path, headers, body }: RestRequest,
  more: readonly string[] = [],
  length: number | undefined = undefined,
): string {
  const text = body?.text ?? '';
  const lines = [
    `${method} ${path} HTTP/1.1`,
    'Host: localhost',
    'Connection: close',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    ...(more.some(line => /^transfer-encoding/i.test(line))
      ? []
      : [`Content-Length: ${length ?? Buffer.byteLength(text)}`]),
    ...more,
  ];
  return `${lines.join('\r\n')}\r\n\r\n${text}`;
}

const raw = (what: string, text: string, cut = false): Abused => ({
  what,
  bytes: { text, encoding: 'utf8' },
  cut,
});

/** What no client would send, made of a request. */
export const ABUSES: readonly Abuse[] = [
  (request, at) => {
    const text = rawText(request);
    return raw('hangs up amid', text.slice(0, at % text.length), true);
  },
  request => raw('announces more than it sends', rawText(request, [], 100_000), true),
  request => raw('sends more than it announces', `${rawText(request)}{"left":"over"}`),
  request => raw('announces a length below zero', rawText(request, [], -1)),
  request => raw('two lengths', rawText(request, ['Content-Length: 3'])),
  // What begins with a digit could be a chunk of that length that is still to come.
  request =>
    raw(
      'a bad chunk',
      rawText({ ...request, body: { text: `x${request.body?.text ?? ''}`, encoding: 'utf8' } }, [
        'Transfer-Encoding: chunked',
      ]),
    ),
  request => raw('an unknown coding', rawText(request, ['Transfer-Encoding: rot13'])),
  request =>
    raw(
      'length and chunks',
      rawText(request, ['Content-Length: 4', 'Transfer-Encoding: chunked']).replace(
        /\r\n\r\n.*/s,
        '\r\n\r\n0\r\n\r\n',
      ),
    ),
  request => raw('no host', rawText(request).replace('Host: localhost\r\n', '')),
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
  request => raw('a whole URL', rawText({ ...request, path: `http://localhost${request.path}` })),
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
    what: 'no text',
    bytes: {
      text: String.fromCharCode(at % 256, 22, 3, 1, 0, at % 251, 255, 13, 10, 13, 10),
      encoding: 'latin1',
    },
    cut: false,
  }),
];
