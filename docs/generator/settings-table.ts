import { DECLARATIONS, ENVIRONMENT_SETTINGS, flagOf, SETTINGS } from '../../env-server/config/settings.ts';
import { code, wrapped } from './markdown.ts';

export const SETTINGS_PAGE = 'docs/reference/server-settings.md';

const BEGIN = '<!-- settings: written by `npm run docs` -->\n';
const END = '<!-- /settings -->\n';

/**
 * The page with its list of settings up to date.
 * @throws Error when the page has no place for it
 */
export function withSettings(page: string): string {
  const [before, rest] = page.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error(`${SETTINGS_PAGE} lacks the lines\n${BEGIN}${END}`);
  const server = listOf(Object.keys(SETTINGS));
  const environments = listOf(Object.keys(ENVIRONMENT_SETTINGS));
  return `${before}${BEGIN}\n${server}\nFor environments that need something of this machine:\n\n${environments}\n${END}${after}`;
}

function listOf(names: readonly string[]): string {
  const lines = names.map(name => {
    const { default: value, help, choices, unset } = DECLARATIONS[name as keyof typeof DECLARATIONS];
    const shown = value === '' ? (unset === 'none' ? '' : ` (${unset})`) : ` (${code(value)})`;
    return wrapped(
      `- ${code(`--${flagOf(name)}`)}${shown}: ${help}${choices ? `: ${choices.join(', ')}` : ''}\n`,
    );
  });
  return lines.join('');
}
