/** Values of a template's placeholders; a line with an undefined one is left out. */
export type PlaceholderValues = { readonly [name: string]: string | number | undefined };

/**
 * Fills `{name}` placeholders in a template given as lines.
 * @throws Error naming a placeholder that has no entry among the values
 *
 * @example
 * fill(['Turn {turn}.', 'Reward: {reward}'], { turn: 1, reward: undefined }); // 'Turn 1.'
 */
export function fill(lines: readonly string[], values: PlaceholderValues): string {
  const out: string[] = [];
  for (const line of lines) {
    let complete = true;
    const filled = line.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
      if (!(name in values)) {
        throw new Error(`no value for {${name}} in "${line}"; there are: ${Object.keys(values).join(', ')}`);
      }
      const value = values[name];
      if (value === undefined) complete = false;
      return String(value);
    });
    if (complete) out.push(filled);
  }
  return out.join('\n');
}
