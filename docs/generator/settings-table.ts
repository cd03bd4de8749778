import {
  DECLARATIONS,
  ENVIRONMENT_SETTINGS,
  flagOf,
  SETTINGS,
  variableOf,
} from '../../env-server/config/settings.ts';

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
  const server = tableOf(Object.keys(SETTINGS));
  const environments = tableOf(Object.keys(ENVIRONMENT_SETTINGS));
  return `${before}${BEGIN}${server}\nFor environments that need something of this machine:\n\n${environments}${END}${after}`;
}

function tableOf(names: readonly string[]): string {
  const rows = names.map(name => {
    const { default: value, help, choices } = DECLARATIONS[name as keyof typeof DECLARATIONS];
    const shown = value === '' ? '' : `\`${value}\``;
    const meaning = help.replaceAll('|', '\\|') + (choices ? `: ${choices.join(', ')}` : '');
    return `| \`--${flagOf(name)}\` | \`${variableOf(name)}\` | ${shown} | ${meaning} |\n`;
  });
  return `| flag | variable | default | meaning |\n| --- | --- | --- | --- |\n${rows.join('')}`;
}
