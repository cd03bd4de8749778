import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { Static } from 'typebox';
import { isLoopback } from '../../../shared/http/addresses.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { compileCheck } from '../../operations/validation.ts';
import { Problem } from '../../problems.ts';
import { type Principal, SCOPES, type Scope } from '../../sessions/principal.ts';
import { isOrsPath } from '../ors/requests.ts';

const TokenList = Type.Array(
  closed({
    name: Type.String({ minLength: 1, maxLength: 128 }),
    sha256: Type.String({ pattern: '^[0-9a-f]{64}$' }),
    scopes: Type.Array(Type.Enum([...SCOPES], { type: 'string' }), { minItems: 1 }),
  }),
);
type TokenList = Static<typeof TokenList>;

/** The principal of every client of a loopback server without tokens. */
const LOCAL: Principal = { name: 'local', scopes: new Set<Scope>(SCOPES) };

/** The digest that represents a token in the configuration. */
export function hashToken(token: string): string {
  return hash('sha256', token, 'hex');
}

/** Number of headers with a remembered principal, so that a client's token is hashed once and not for every request. */
const HEADERS_REMEMBERED = 1024;

/** Authenticates tokens by their digests. */
export class Authenticator {
  readonly #principals: ReadonlyMap<string, Principal>;
  readonly #byHeader = new Map<string, Principal>();

  /** @param tokens a path to a JSON file, the JSON itself, or empty for none */
  constructor(tokens: string) {
    this.#principals = new Map(
      readTokens(tokens).map(({ name, sha256, scopes }) => [
        sha256,
        { name, scopes: new Set<Scope>(scopes) },
      ]),
    );
  }

  get required(): boolean {
    return this.#principals.size > 0;
  }

  /**
   * The principal of a request.
   * @throws Problem `unauthorized`
   */
  principal(authorization: string | undefined): Principal {
    if (!this.required) return LOCAL;
    const known = authorization === undefined ? undefined : this.#byHeader.get(authorization);
    if (known) return known;
    if (authorization === undefined || !/^bearer /i.test(authorization)) {
      throw new Problem('unauthorized', 'the header "Authorization: Bearer <token>" is missing');
    }
    const principal = this.#principals.get(hashToken(authorization.slice('bearer '.length).trim()));
    if (!principal) throw new Problem('unauthorized', 'the token is not known to this server');
    if (this.#byHeader.size >= HEADERS_REMEMBERED) this.#byHeader.clear();
    this.#byHeader.set(authorization, principal);
    return principal;
  }
}

function readTokens(source: string): TokenList {
  if (source === '') return [];
  const inline = source.trimStart().startsWith('[');
  const what = inline ? 'tokens' : source;
  let list: unknown;
  try {
    list = JSON.parse(inline ? source : readFileSync(source, 'utf8'));
  } catch (error) {
    throw new Error(`${what}: no list of tokens in JSON could be read: ${(error as Error).message}`);
  }
  compileCheck(TokenList, what)(list);
  return list as TokenList;
}

/** @throws Error when a server without tokens would be reachable from outside */
export function refuseOpenServer(host: string, authenticator: Authenticator): void {
  if (isLoopback(host) || authenticator.required) return;
  throw new Error(
    `refusing to listen on ${host} without tokens: anybody could use the server; set --tokens or listen on 127.0.0.1`,
  );
}

const COMPATIBLE_ROUTES = '/compat/';
const BASIC = /^basic (.+)$/i;
/**
 * Prefix of the subprotocol by which a browser, which cannot set headers on a WebSocket, passes its token in base64url.
 */
const TOKEN_PROTOCOL = /(?:^|,)\s*ragen\.bearer\.([\w-]+)\s*(?:,|$)/;
const SOCKET = /^\/v1\/ws(\?|$)/;

/**
 * The `Authorization` of a request. Clients that cannot send a bearer token pass it in the address, as the password
 * (`http://any:token@host/compat/…`); browsers in a WebSocket subprotocol; clients of the Open Reward Standard in
 * `X-API-Key`.
 */
export function authorizationOf({
  url = '',
  headers,
}: Pick<IncomingMessage, 'url' | 'headers'>): string | undefined {
  const { authorization = socketAuthorization(url, headers), 'x-api-key': key } = headers;
  const basic = authorization === undefined ? null : BASIC.exec(authorization);
  if (!basic && typeof key !== 'string') return authorization;
  const isOrs = isOrsPath(url);
  if (isOrs && typeof key === 'string') return `Bearer ${key}`;
  if (!basic || !(isOrs || url.startsWith(COMPATIBLE_ROUTES))) return authorization;
  const pair = Buffer.from(basic[1], 'base64').toString();
  return `Bearer ${pair.slice(pair.indexOf(':') + 1)}`;
}

/** `Authorization` header for a WebSocket that passes its token as a subprotocol; undefined for any other request. */
function socketAuthorization(url: string, headers: IncomingHttpHeaders): string | undefined {
  if (headers.upgrade === undefined || !SOCKET.test(url)) return undefined;
  const token = TOKEN_PROTOCOL.exec(headers['sec-websocket-protocol'] ?? '')?.[1];
  return token === undefined ? undefined : `Bearer ${Buffer.from(token, 'base64url').toString()}`;
}
