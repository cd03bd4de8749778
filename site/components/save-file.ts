/** Long enough for a browser that asks where to save. */
const KEEP_MS = 60_000;

/** Lets the browser save something as a file; a name has no characters that file systems refuse. */
export function saveFile(name: string, content: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name.replace(/[^\w.-]+/g, '-');
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEEP_MS);
}
