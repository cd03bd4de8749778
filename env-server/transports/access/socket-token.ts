import type { IncomingMessage } from 'node:http';

/** The subprotocol by which a browser, which sends no header with a WebSocket, gives its token in base64url. */
const TOKEN_PROTOCOL = /(?:^|,)\s*ragen\.bearer\.([\w-]+)\s*(?:,|$)/;
const SOCKET = /^\/v1\/ws(\?|$)/;

/**
 * `Authorization` header of a WebSocket that gives its token as a subprotocol; undefined for any other request.
 */
export function socketAuthorization({
  url,
  headers,
}: Pick<IncomingMessage, 'url' | 'headers'>): string | undefined {
  if (headers.upgrade === undefined || !SOCKET.test(url ?? '')) return undefined;
  const token = TOKEN_PROTOCOL.exec(headers['sec-websocket-protocol'] ?? '')?.[1];
  return token === undefined ? undefined : `Bearer ${Buffer.from(token, 'base64url').toString()}`;
}
