import type { PageAddress, ShopPage } from './pages.ts';
import type { Goal } from './product.ts';
import type { Verdict } from './reward.ts';

export type TextShopState = {
  readonly files: {
    readonly products: string;
    readonly attributes?: string;
    readonly instructions?: string;
  } | null;
  readonly strict: boolean;
  readonly goal: Goal;
  readonly where: PageAddress;
  readonly page: ShopPage;
  readonly verdict: Verdict | null;
};
