import type { Address } from './address.ts';

/** One of the page's views. */
export interface View<Name extends Address['view']> {
  readonly element: HTMLElement;
  /** @param first whether it is what the page begins with, so that the focus stays where it is */
  show(address: Extract<Address, { view: Name }>, first: boolean): Promise<void>;
  hide(): void;
}
