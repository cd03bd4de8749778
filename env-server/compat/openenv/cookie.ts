import { parseCookie, stringifySetCookie } from 'cookie';
import type { FastifyReply, FastifyRequest } from 'fastify';

/** Names the session of a client that names none itself. */
const COOKIE = 'openenv_session';

/** The session that a client's cookie names; empty without one. */
export function sessionOfCookie({ headers }: FastifyRequest): string {
  return parseCookie(headers.cookie ?? '')[COOKIE] ?? '';
}

/** Gives a client a cookie with its session, which it sends back to the same environment only. */
export function setSessionCookie(reply: FastifyReply, sessionId: string): void {
  const { url } = reply.request;
  const [path] = url.split('?', 1);
  reply.header(
    'set-cookie',
    stringifySetCookie({
      name: COOKIE,
      value: sessionId,
      path: path.slice(0, path.lastIndexOf('/')),
      httpOnly: true,
      sameSite: 'strict',
    }),
  );
}
