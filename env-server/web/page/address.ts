/** Where in the page one is: the part of its address behind `#`. */
export type Address =
  | { readonly view: 'play'; readonly envId?: string; readonly preset?: string; readonly seed?: number }
  | { readonly view: 'watch'; readonly sessionId?: string }
  | { readonly view: 'register'; readonly envId?: string };

/** @param hash `location.hash`; what it does not understand leads to the play view */
export function parseAddress(hash: string): Address {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [view, ...rest] = path.split('/');
  const name = decode(rest.join('/')) || undefined;
  if (view === 'watch') return { view, sessionId: name };
  if (view === 'register') return { view, envId: name };
  const parameters = new URLSearchParams(query);
  const seed = parameters.get('seed') ?? '';
  return {
    view: 'play',
    envId: name,
    preset: parameters.get('preset') ?? undefined,
    seed: /^\d+$/.test(seed) && Number.isSafeInteger(Number(seed)) ? Number(seed) : undefined,
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address as a link has it. */
export function formatAddress(address: Address): string {
  const name = address.view === 'watch' ? address.sessionId : address.envId;
  const path = `#/${address.view}${name === undefined ? '' : `/${encodeURIComponent(name)}`}`;
  if (address.view !== 'play') return path;
  const parameters = new URLSearchParams();
  if (address.preset !== undefined) parameters.set('preset', address.preset);
  if (address.seed !== undefined) parameters.set('seed', String(address.seed));
  const query = String(parameters);
  return query === '' ? path : `${path}?${query}`;
}
