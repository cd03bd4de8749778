import { textTool } from '../core/action-tool.ts';
import type { ActionTool } from '../core/environment.ts';

export const TOOLS: readonly ActionTool[] = [
  textTool(
    'search',
    'Searches the shop from its search page.',
    { query: 'A few words' },
    ({ query }) => `search[${query}]`,
  ),
  textTool(
    'click',
    'Clicks on something that the page offers: a product, an option, Buy Now, Next >, < Prev, Back to Search.',
    { element: 'As the page writes it' },
    ({ element }) => `click[${element}]`,
  ),
];
