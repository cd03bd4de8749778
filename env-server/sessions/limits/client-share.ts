/** Part of a limit that one token may have unless it is set. */
const CLIENT_SHARE = 0.75;

/**
 * The most that one client may have of what all share, so that one token leaves something to the others. Without
 * tokens clients are addresses, and one may have everything.
 * @param ofClient the setting; 0 for the default
 */
export function mostOfClient(ofAll: number, ofClient: number, tokens: string): number {
  if (ofClient > 0) return ofClient;
  return tokens === '' ? ofAll : Math.max(1, Math.floor(ofAll * CLIENT_SHARE));
}
