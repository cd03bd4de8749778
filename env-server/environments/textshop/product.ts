/** A product as the shop shows it. */
export interface Product {
  readonly asin: string;
  readonly title: string;
  readonly category: string;
  /** The search that the product was collected under. */
  readonly query: string;
  /** `Clothing › Shoes › Athletic`. */
  readonly productCategory: string;
  readonly description: string;
  readonly features: readonly string[];
  readonly attributes: readonly string[];
  /** Values of each option, both in lower case. */
  readonly options: { readonly [name: string]: readonly string[] };
  /** One price, or the ends of a range. */
  readonly prices: readonly number[];
  readonly rating: string;
  readonly reviews: readonly string[];
}

/** Goal of a customer. */
export type Goal = {
  readonly asin: string;
  readonly instruction: string;
  readonly attributes: readonly string[];
  readonly options: readonly string[];
  /** The price must not be higher. */
  readonly price_upper: number;
};

/** Price to pay: the middle of a range. */
export function priceOf({ prices }: Product): number {
  return prices.reduce((sum, price) => sum + price, 0) / prices.length;
}

export function priceTag({ prices }: Product): string {
  return prices.map(price => `$${price.toFixed(2)}`).join(' to ');
}
