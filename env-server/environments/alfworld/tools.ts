import { textTool } from '../core/action-tool.ts';
import type { ActionTool } from '../core/environment.ts';

const THING = 'Name of a thing, e.g. apple 1';
const FURNITURE = 'Name of a piece of furniture, e.g. fridge 1';

/** The verbs of `actions.ts`. */
export const TOOLS: readonly ActionTool[] = [
  textTool(
    'go_to',
    'Walks to a piece of furniture.',
    { furniture: FURNITURE },
    ({ furniture }) => `go to ${furniture}`,
  ),
  textTool(
    'open',
    'Opens the furniture you stand at.',
    { furniture: FURNITURE },
    ({ furniture }) => `open ${furniture}`,
  ),
  textTool(
    'close',
    'Closes the furniture you stand at.',
    { furniture: FURNITURE },
    ({ furniture }) => `close ${furniture}`,
  ),
  textTool(
    'take',
    'Takes a thing from the furniture you stand at.',
    { thing: THING, furniture: FURNITURE },
    ({ thing, furniture }) => `take ${thing} from ${furniture}`,
  ),
  textTool(
    'put',
    'Puts the thing you carry in or on the furniture you stand at.',
    { thing: THING, furniture: FURNITURE },
    ({ thing, furniture }) => `put ${thing} in/on ${furniture}`,
  ),
  textTool(
    'clean',
    'Washes the thing you carry.',
    { thing: THING, furniture: 'Name of the sinkbasin you stand at' },
    ({ thing, furniture }) => `clean ${thing} with ${furniture}`,
  ),
  textTool(
    'heat',
    'Heats the thing you carry.',
    { thing: THING, furniture: 'Name of the microwave you stand at' },
    ({ thing, furniture }) => `heat ${thing} with ${furniture}`,
  ),
  textTool(
    'cool',
    'Cools the thing you carry.',
    { thing: THING, furniture: 'Name of the fridge you stand at' },
    ({ thing, furniture }) => `cool ${thing} with ${furniture}`,
  ),
  textTool('use', 'Switches a lamp on or off.', { thing: 'Name of a lamp' }, ({ thing }) => `use ${thing}`),
  textTool(
    'examine',
    'Looks at the furniture you stand at or the thing you carry.',
    { name: 'Its name' },
    ({ name }) => `examine ${name}`,
  ),
  textTool('inventory', 'Lists what you carry.', {}, () => 'inventory'),
  textTool('look', 'Shows where you are and what you see.', {}, () => 'look'),
];
