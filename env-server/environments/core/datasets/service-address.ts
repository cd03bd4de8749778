import { itemsOf } from '../../../../shared/http/addresses.ts';
import { InvalidConfig } from '../environment.ts';

const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]']);

/**
 * The address of a service in a configuration, without its final slash. Configurations come from clients, so only this
 * machine and the hosts that the operator lists are allowed.
 * @param variable environment variable with further hosts (`host` or `host:port`), separated by commas
 * @throws InvalidConfig
 */
export function checkServiceAddress(pointer: string, url: string, variable: string): string {
  if (!URL.canParse(url)) throw new InvalidConfig(pointer, `${url} is not a URL`);
  const { protocol, hostname, host } = new URL(url);
  if (protocol !== 'http:' && protocol !== 'https:') {
    throw new InvalidConfig(pointer, 'must be an http or https URL');
  }
  const listed = itemsOf((process.env[variable] ?? '').toLowerCase());
  if (!LOOPBACK.has(hostname) && !listed.includes(hostname) && !listed.includes(host)) {
    throw new InvalidConfig(
      pointer,
      `must be on this machine or a host that ${variable} names; ${host} is neither`,
    );
  }
  return url.replace(/(?<!\/)\/+$/, '');
}
