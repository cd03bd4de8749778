import { type Address, formatAddress, parseAddress } from './address.ts';

/**
 * The part of the browser's address behind `#`. A link that is followed changes it before the page hears of that by
 * `hashchange`; what the page writes in between would take the visitor back to where they were.
 */
export class AddressBar {
  #read = location.hash;

  /** Where the visitor wants to be. */
  read(): Address {
    this.#read = location.hash;
    return parseAddress(this.#read);
  }

  /** Writes where the visitor is, unless they are on their way elsewhere. */
  replace(address: Address): void {
    if (location.hash !== this.#read) return;
    history.replaceState(null, '', formatAddress(address));
    this.#read = location.hash;
  }
}
