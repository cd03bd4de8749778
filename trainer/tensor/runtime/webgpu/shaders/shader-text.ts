/** Lines of a shader's text, one for each number below `count`. */
export function over(count: number, line: (i: number) => string): string {
  return list(count, line, '\n');
}

/** Parts of a line of a shader's text, one for each number below `count`. */
export function list(count: number, item: (i: number) => string, separator = ', '): string {
  return Array.from({ length: count }, (_, i) => item(i)).join(separator);
}
