import { isLoopback as isLoopbackHost } from '../../shared/http/loopback.ts';

/** True if an address is of this machine. */
export function isLoopback({ hostname }: URL): boolean {
  return isLoopbackHost(hostname.replace(/^\[|\]$/g, ''));
}

/** True if a hub at `endpoint` may send a client there: to https, or from this machine to this machine. */
export function mayRedirect(endpoint: string, target: URL): boolean {
  if (target.protocol === 'https:') return true;
  return target.protocol === 'http:' && isLoopback(target) && isLoopback(new URL(endpoint));
}
